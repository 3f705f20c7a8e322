-- What of the node survey is stale for a reader of availability: `stale` are the nodes that changed, fell
-- silent or were heard again since, the first of them with the transaction that marked them (`marks`).
-- `own` are the nodes where something is reserved to `asker`, which may be null. `worthless`: there is
-- nothing to start from. `due`: the survey is to be brought up to date before anything is read. At most
-- `most` nodes are named.
CREATE OR REPLACE FUNCTION compute_freshness(
    asker uuid, at timestamptz, grace interval, most integer, thorough boolean, OUT version uuid,
    OUT worthless boolean, OUT due boolean, OUT stale uuid[], OUT marks bigint[], OUT own uuid[]
) LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    state record;
    taken pg_snapshot;
    highest bigint;
BEGIN
    SELECT s.version, s.surveyed_at, s.checked_at, s.next_term_at, s.snapshot, s.silent INTO state
    FROM compute_availabilitystate s WHERE s.id = 1;
    IF NOT FOUND THEN RETURN; END IF;
    version := state.version;
    taken := state.snapshot;
    highest := pg_snapshot_xmax(taken)::text::bigint;
    -- Of another cluster, where these transactions are still to come; or of a clock that was set back.
    worthless := highest > pg_snapshot_xmax(pg_current_snapshot())::text::bigint
        OR state.surveyed_at > at + interval '1 second';
    -- Nobody has looked for a while, or a hold has begun or ended.
    due := state.checked_at < at - interval '15 seconds' OR coalesce(state.next_term_at <= at, false);
    IF pg_snapshot_xmin(taken) = pg_snapshot_xmax(taken) AND pg_current_xact_id_if_assigned() IS NULL THEN
        -- Nothing ran when the offers were surveyed: what they have not seen is what came later.
        SELECT coalesce(array_agg(c.node_id), '{}'), coalesce(array_agg(c.xid), '{}') INTO stale, marks FROM (
            SELECT c.node_id, c.xid FROM compute_nodechange c WHERE c.xid >= highest LIMIT most
        ) c;
    ELSE
        SELECT coalesce(array_agg(c.node_id), '{}'), coalesce(array_agg(c.xid), '{}') INTO stale, marks FROM (
            SELECT c.node_id, c.xid FROM compute_nodechange c WHERE c.xid >= highest
            UNION ALL
            SELECT c.node_id, c.xid FROM compute_nodechange c
            WHERE c.xid < highest AND c.xid = ANY(compute_unseen_xids(taken))
            LIMIT most
        ) c;
    END IF;
    stale := stale || ARRAY(
        SELECT beat.node_id FROM nodes_nodeheartbeat beat
        WHERE beat.seen_at > state.surveyed_at - grace AND beat.seen_at <= at - grace
        LIMIT most
    );
    IF thorough OR state.silent BETWEEN 1 AND 200 THEN
        stale := stale || ARRAY(
            SELECT offer.node_id FROM compute_nodeoffer offer
            JOIN nodes_nodeheartbeat beat ON beat.node_id = offer.node_id
            WHERE NOT offer.online AND beat.seen_at > at - grace
            LIMIT most
        );
    END IF;
    IF thorough AND state.next_term_at <= at THEN
        stale := stale || ARRAY(
            SELECT hold.node_id FROM nodes_hold hold
            WHERE (lower(hold.term) > state.surveyed_at AND lower(hold.term) <= at)
               OR (upper(hold.term) > state.surveyed_at AND upper(hold.term) <= at)
        );
    END IF;
    IF asker IS NOT NULL THEN
        own := ARRAY(
            SELECT hold.node_id FROM nodes_holdaudience audience
            JOIN nodes_hold hold ON hold.id = audience.hold_id
            WHERE audience.organization_id = asker AND hold.term @> at
        );
    END IF;
END $$;
