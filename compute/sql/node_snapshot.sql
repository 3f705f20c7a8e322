-- The snapshot of one node, read under its lock: all that placing a workload there goes by. `without` is a
-- workload whose disk does not count. Rows are JSON arrays; compute/services/placement/snapshot.py reads
-- them.
CREATE OR REPLACE FUNCTION compute_node_snapshot(
    node uuid, at timestamptz, grace interval, without uuid, OUT heard boolean, OUT units json,
    OUT failed json, OUT holds json, OUT models json, OUT guests json, OUT claims json,
    OUT occupancies json, OUT disk_gb bigint
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
    INTO guests FROM compute_run run, LATERAL (
        SELECT * FROM compute_workload vm WHERE vm.id = run.workload_id OFFSET 0
    ) vm
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
