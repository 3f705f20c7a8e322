-- The free units of some nodes, by GPU model: sizes open to every tier, and sizes open to spot alone.
-- `until` is when that may change without a change of the node: a hold begins or ends, or the node falls
-- silent.
CREATE OR REPLACE FUNCTION compute_open_units(
    nodes uuid[], at timestamptz, grace interval, OUT node_id uuid, OUT gpu_model_id uuid,
    OUT sizes smallint[], OUT on_market smallint[], OUT until timestamptz
) RETURNS SETOF record LANGUAGE plpgsql STABLE
  SET plan_cache_mode = force_generic_plan
  SET enable_seqscan = off
  SET enable_hashjoin = off
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
