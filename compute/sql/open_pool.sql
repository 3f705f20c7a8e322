-- The free units that a request without a named node may use, by GPU model, region and unit sizes, with the
-- nodes that have them: the table of eligibility (compute/domain/eligibility.py) for the public pool.
-- `buyer` is the organization of a spot request and null otherwise.
CREATE OR REPLACE FUNCTION compute_open_pool(
    class text, runs text, models uuid[], levels integer[], among uuid[], within text[], buyer uuid,
    at timestamptz, grace interval, OUT gpu_model_id uuid, OUT region text, OUT sizes smallint[],
    OUT on_market smallint[], OUT nodes uuid[]
) RETURNS SETOF record LANGUAGE plpgsql STABLE
  SET plan_cache_mode = force_generic_plan
  SET enable_seqscan = off
  SET enable_nestloop = off
  SET enable_mergejoin = off
  SET enable_sort = off
  SET jit = off
  SET work_mem TO '64MB' AS $$
DECLARE
    ids uuid[];
    regions text[];
    ranks integer[];
BEGIN
    SELECT array_agg(node.id), array_agg(location.region), array_agg(beat.agent_level) INTO ids, regions, ranks
    FROM nodes_node node
    JOIN nodes_nodeheartbeat beat ON beat.node_id = node.id AND beat.seen_at > at - grace
    LEFT JOIN nodes_location location ON location.id = node.location_id
    WHERE node.removed_at IS NULL AND node.runtime = runs AND node.owner_hold = '' AND node.terminate_at IS NULL
      AND (among IS NULL OR node.id = ANY(among)) AND (within IS NULL OR location.region = ANY(within));
    RETURN QUERY
    WITH taken AS (
        SELECT claim.unit_id FROM compute_claim claim WHERE claim.node_id = ANY(ids)
        UNION ALL
        SELECT occupancy.unit_id FROM compute_occupancy occupancy
        WHERE occupancy.node_id = ANY(ids) AND occupancy.closed_at IS NULL
        UNION ALL
        SELECT gpu.unit_id FROM nodes_gpu gpu WHERE gpu.failed_at IS NOT NULL
        UNION ALL
        -- A hold that needs review is on no market, and nobody buys what is reserved to them.
        SELECT held.unit_id
        FROM nodes_holdunit held
        JOIN nodes_hold hold ON hold.id = held.hold_id
        JOIN nodes_node node ON node.id = held.node_id
        WHERE held.node_id = ANY(ids) AND node.id = ANY(ids) AND held.term @> at
          AND (buyer IS NULL OR NOT held.released OR hold.topology_gen <> node.topology_gen OR EXISTS (
              SELECT FROM nodes_holdaudience own WHERE own.hold_id = hold.id AND own.organization_id = buyer))
    ), open AS (
        SELECT unit.node_id, unit.gpu_model_id,
               coalesce(array_agg(unit.gpu_count) FILTER (WHERE NOT unit.held), '{}') AS sizes,
               coalesce(array_agg(unit.gpu_count) FILTER (WHERE unit.held), '{}') AS on_market
        FROM (
            SELECT unit.node_id, unit.gpu_model_id, unit.gpu_count,
                   -- What is held and not taken is on the market.
                   CASE WHEN buyer IS NULL THEN false ELSE EXISTS (
                       SELECT FROM nodes_holdunit held WHERE held.unit_id = unit.id AND held.term @> at
                   ) END AS held
            FROM nodes_gpuunit unit
            WHERE unit.node_id = ANY(ids) AND unit.gpu_model_id = ANY(models)
              AND unit.gone_at IS NULL AND unit.sellable AND unit.alloc_class = class
              AND NOT EXISTS (SELECT FROM taken WHERE taken.unit_id = unit.id)
        ) unit
        GROUP BY unit.node_id, unit.gpu_model_id
    )
    SELECT open.gpu_model_id, host.region, open.sizes, open.on_market, array_agg(host.id)
    FROM open
    JOIN unnest(ids, regions, ranks) AS host (id, region, rank) ON host.id = open.node_id
    JOIN unnest(models, levels) AS wanted (model, rank) ON wanted.model = open.gpu_model_id
    WHERE host.rank >= wanted.rank
    GROUP BY open.gpu_model_id, host.region, open.sizes, open.on_market;
END $$;
