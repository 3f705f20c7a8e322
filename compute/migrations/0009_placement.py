from django.db import migrations

# What of some nodes the public pool may be placed on at a moment: for each node and GPU model the sizes of its
# unreserved free units, and of those that their holders put on the spot market. A node with none is there
# without a model. It stays so while nothing marks the node, `until` a moment: '-infinity' where only a
# heartbeat is missing, which marks nothing.
#
# In the database, for its plan is kept there and no statistics lead it astray: node by node, by index.
OPEN_UNITS = """
CREATE FUNCTION compute_open_units(
    nodes uuid[], at timestamptz, grace interval,
    OUT node_id uuid, OUT gpu_model_id uuid, OUT sizes smallint[], OUT on_market smallint[],
    OUT until timestamptz
) RETURNS SETOF record LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
BEGIN
    RETURN QUERY
    SELECT asked.id, open.gpu_model_id, open.sizes, open.on_market,
           CASE WHEN NOT coalesce(host.takes_work, false) THEN 'infinity'
                WHEN NOT host.heard THEN '-infinity'
                ELSE least(host.seen_at + grace, (
                    SELECT min(moment)
                    FROM nodes_hold hold, unnest(ARRAY[lower(hold.term), upper(hold.term)]) moment
                    WHERE hold.node_id = asked.id AND moment > at))
           END
    FROM (SELECT DISTINCT unnest(nodes) AS id) asked
    LEFT JOIN LATERAL (
        SELECT node.topology_gen, beat.seen_at, coalesce(beat.seen_at > at - grace, false) AS heard,
               node.removed_at IS NULL AND node.owner_hold = '' AND node.terminate_at IS NULL
                   AND node.runtime = 'qemu' AS takes_work
        FROM nodes_node node LEFT JOIN nodes_nodeheartbeat beat ON beat.node_id = node.id
        WHERE node.id = asked.id
        OFFSET 0
    ) host ON true
    LEFT JOIN LATERAL (
        SELECT unit.gpu_model_id,
               coalesce(array_agg(unit.gpu_count) FILTER (WHERE held.released IS NULL), '{}') AS sizes,
               coalesce(array_agg(unit.gpu_count) FILTER (WHERE held.released), '{}') AS on_market
        FROM nodes_gpuunit unit
        LEFT JOIN LATERAL (
            -- A hold that needs review is on no market. A unit in a hold has the hold's term.
            SELECT held.released AND hold.topology_gen = host.topology_gen AS released
            FROM nodes_hold hold JOIN nodes_holdunit held ON held.hold_id = hold.id
            WHERE hold.node_id = asked.id AND hold.term @> at AND held.unit_id = unit.id
            OFFSET 0
        ) held ON true
        WHERE host.takes_work AND host.heard AND unit.node_id = asked.id
          AND unit.gone_at IS NULL AND unit.sellable AND unit.alloc_class = 'vfio-group'
          AND NOT EXISTS (SELECT FROM compute_claim claim WHERE claim.unit_id = unit.id)
          AND NOT EXISTS (
              SELECT FROM compute_occupancy occupancy
              WHERE occupancy.unit_id = unit.id AND occupancy.closed_at IS NULL)
          AND NOT EXISTS (SELECT FROM nodes_gpu gpu WHERE gpu.unit_id = unit.id AND gpu.failed_at IS NOT NULL)
        GROUP BY unit.gpu_model_id
    ) open ON true;
END $$;
"""
# The transactions that a snapshot does not see though they are older than its end: those that ran at the time, and
# this very one, whose changes are in no snapshot of its own.
UNSEEN = """
CREATE FUNCTION compute_unseen(taken pg_snapshot) RETURNS bigint[] LANGUAGE sql STABLE AS $$
    SELECT array_append(
        ARRAY(SELECT xip::text::bigint FROM pg_snapshot_xip(taken) xip),
        pg_current_xact_id_if_assigned()::text::bigint)
$$;
"""
# What a reader does not know yet of the pool, who read the offers of version `known` and was told what changed
# up to the snapshot `seen`: nodes changed since, those fallen silent or heard again, and those it asks for
# `again`, each as `compute_open_units` has it. `asker` may be null; `own` is where something is reserved to it.
#
# What a snapshot does not see is what began after it and what ran at the time: found by number, however long
# the oldest of those ran.
NEWS = """
CREATE FUNCTION compute_pool_news(
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
        SELECT c.node_id FROM compute_nodechange c WHERE c.xid < highest AND c.xid = ANY(compute_unseen(taken))
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
"""
# The same for readers of availability, as 0006 has it, but found by number.
FRESHNESS = """
CREATE OR REPLACE FUNCTION compute_freshness(
    asker uuid, at timestamptz, grace interval, most integer, thorough boolean,
    OUT version uuid, OUT worthless boolean, OUT due boolean, OUT stale uuid[], OUT marks bigint[],
    OUT own uuid[]
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
    SELECT coalesce(array_agg(c.node_id), '{}'), coalesce(array_agg(c.xid), '{}') INTO stale, marks FROM (
        SELECT c.node_id, c.xid FROM compute_nodechange c WHERE c.xid >= highest
        UNION ALL
        SELECT c.node_id, c.xid FROM compute_nodechange c
        WHERE c.xid < highest AND c.xid = ANY(compute_unseen(taken))
        LIMIT most
    ) c;
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
"""
# All that placing on a locked node goes by, as of the statement: whether the node was heard from, its units and
# their GPU models, the guests that may be there, which of them has a claim on or may be on which unit, and the GB
# of the disks there but for that of `without`. `compute.services.placement.snapshot` reads it.
ON_NODE = """
CREATE FUNCTION compute_on_node(
    node uuid, at timestamptz, grace interval, without uuid,
    OUT heard boolean, OUT units json, OUT failed json, OUT holds json, OUT models json, OUT guests json,
    OUT claims json, OUT occupancies json, OUT disk_gb bigint
) LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
    heard := EXISTS (
        SELECT FROM nodes_nodeheartbeat beat WHERE beat.node_id = node AND beat.seen_at > at - grace);
    SELECT json_agg(json_build_array(
               unit.id, unit.address, unit.alloc_class, unit.gpu_model_id, unit.gpu_count, unit.sellable,
               unit.gone_at IS NOT NULL) ORDER BY unit.address)
    INTO units FROM nodes_gpuunit unit WHERE unit.node_id = node;
    SELECT json_agg(json_build_array(gpu.unit_id, gpu.address) ORDER BY gpu.address)
    INTO failed FROM nodes_gpuunit unit JOIN nodes_gpu gpu ON gpu.unit_id = unit.id AND gpu.failed_at IS NOT NULL
    WHERE unit.node_id = node;
    -- A unit in a hold has the hold's term.
    SELECT json_agg(json_build_array(held.unit_id, hold.id, hold.topology_gen, held.released, ARRAY(
               SELECT kept.organization_id FROM nodes_holdaudience kept WHERE kept.hold_id = hold.id)))
    INTO holds FROM nodes_hold hold JOIN nodes_holdunit held ON held.hold_id = hold.id
    WHERE hold.node_id = node AND hold.term @> at;
    SELECT json_agg(json_build_array(model.id, model.name, model.manufacturer, model.vram_gb))
    INTO models FROM nodes_gpumodel model
    WHERE model.id IN (SELECT unit.gpu_model_id FROM nodes_gpuunit unit WHERE unit.node_id = node);
    SELECT json_agg(json_build_array(
               run.id, vm.id, vm.guest_mem_mb, vm.guest_vcpu, vm.disk_size_gb, vm.status, vm.tier, vm.created_at))
    INTO guests FROM compute_run run JOIN compute_workload vm ON vm.id = run.workload_id
    WHERE run.node_id = node AND run.closed_at IS NULL;
    SELECT json_agg(json_build_array(claim.unit_id, claim.run_id))
    INTO claims FROM compute_claim claim WHERE claim.node_id = node;
    SELECT json_agg(json_build_array(occupancy.unit_id, occupancy.run_id) ORDER BY occupancy.id)
    INTO occupancies FROM compute_occupancy occupancy
    WHERE occupancy.node_id = node AND occupancy.closed_at IS NULL;
    SELECT coalesce(sum(vm.disk_size_gb), 0)
    INTO disk_gb FROM compute_workload vm
    WHERE vm.node_id = node AND vm.status <> 'terminated' AND vm.id IS DISTINCT FROM without;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("compute", "0008_offers_by_shape"),
    ]

    operations = [
        migrations.RunSQL(UNSEEN, "DROP FUNCTION compute_unseen(pg_snapshot) CASCADE"),
        migrations.RunSQL(FRESHNESS, migrations.RunSQL.noop),
        migrations.RunSQL(ON_NODE, "DROP FUNCTION compute_on_node(uuid, timestamptz, interval, uuid)"),
        migrations.RunSQL(OPEN_UNITS, "DROP FUNCTION compute_open_units(uuid[], timestamptz, interval)"),
        migrations.RunSQL(
            NEWS,
            "DROP FUNCTION compute_pool_news(uuid, text, uuid[], uuid, timestamptz, interval, integer)",
        ),
    ]
