from django.db import migrations

# All that placing on a locked node goes by, as of the statement: whether the node was heard from, its units and
# their GPU models, the guests that may be there, which of them has a claim on or may be on which unit, and the GB
# of the disks there but for that of `without`. `compute.services.node_facts` reads it.
ON_NODE = """
DROP FUNCTION compute_on_node(uuid, timestamptz, interval, uuid);
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
# As 0009 has it, with the holds looked up by node.
OPEN_UNITS = """
CREATE OR REPLACE FUNCTION compute_open_units(
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


class Migration(migrations.Migration):
    dependencies = [
        ("compute", "0010_sweeps"),
    ]

    operations = [
        migrations.RunSQL(ON_NODE, migrations.RunSQL.noop),
        migrations.RunSQL(OPEN_UNITS, migrations.RunSQL.noop),
    ]
