-- The delta of the fleet since a reader's index: nodes changed, fallen silent or heard again since the
-- snapshot `seen` of the survey `known`, and those that it asks for `again`, each as compute_open_units has
-- it. `own` are the nodes where something is reserved to `asker`, which may be null.
--
-- A snapshot does not see the transactions that began after it and those that ran when it was taken. They
-- are found by number, however long the oldest of them ran.
CREATE OR REPLACE FUNCTION compute_fleet_delta(
    known uuid, seen text, again uuid[], asker uuid, at timestamptz, grace interval, most integer,
    OUT version uuid, OUT usable boolean, OUT seen_now text, OUT own uuid[], OUT news json
) LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    state record;
    taken pg_snapshot;
    highest bigint;
    told uuid[];
BEGIN
    SELECT s.version, s.surveyed_at, s.checked_at, s.next_term_at, s.snapshot, s.silent INTO state
    FROM compute_availabilitystate s WHERE s.id = 1;
    IF NOT FOUND THEN RETURN; END IF;
    version := state.version;
    seen_now := pg_current_snapshot()::text;
    taken := CASE WHEN version = known THEN seen ELSE state.snapshot END;
    highest := pg_snapshot_xmax(taken)::text::bigint;
    told := ARRAY(
        SELECT c.node_id FROM compute_nodechange c WHERE c.xid >= highest
        UNION ALL
        SELECT c.node_id FROM compute_nodechange c WHERE c.xid < highest AND c.xid = ANY(compute_unseen_xids(taken))
        LIMIT most
    );
    -- Not so of another cluster, or of a clock that was set back; when nobody brought the offers up to date for
    -- long, or a hold has begun or ended; when too much has changed, or every node has.
    usable := highest <= pg_snapshot_xmax(seen_now::pg_snapshot)::text::bigint
        AND state.surveyed_at <= at + interval '1 second'
        AND state.checked_at >= at - interval '60 seconds'
        AND coalesce(state.next_term_at > at, true)
        AND cardinality(told) < most
        AND NOT '00000000-0000-0000-0000-000000000000' = ANY(told);
    IF NOT usable THEN RETURN; END IF;
    told := told || ARRAY(
        SELECT beat.node_id FROM nodes_nodeheartbeat beat
        WHERE beat.seen_at > state.surveyed_at - grace AND beat.seen_at <= at - grace
        LIMIT most
    );
    IF version = known THEN told := told || again; END IF;
    IF state.silent BETWEEN 1 AND 200 THEN
        told := told || ARRAY(
            SELECT offer.node_id FROM compute_nodeoffer offer
            JOIN nodes_nodeheartbeat beat ON beat.node_id = offer.node_id
            WHERE NOT offer.online AND beat.seen_at > at - grace
            LIMIT most
        );
    END IF;
    IF asker IS NOT NULL THEN
        own := ARRAY(
            SELECT hold.node_id FROM nodes_holdaudience audience
            JOIN nodes_hold hold ON hold.id = audience.hold_id
            WHERE audience.organization_id = asker AND hold.term @> at
        );
    END IF;
    IF cardinality(told) > 0 THEN
        news := (
            SELECT json_agg(json_build_array(open.node_id, open.gpu_model_id, open.sizes, open.on_market,
                CASE open.until WHEN 'infinity' THEN 9e15 WHEN '-infinity' THEN 0
                ELSE trunc(extract(epoch FROM open.until) * 1000000) END))
            FROM compute_open_units(told, at, grace) open
        );
    END IF;
END $$;
