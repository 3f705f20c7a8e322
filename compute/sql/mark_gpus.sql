-- Statement trigger on GPUs: mark the nodes of their units.
CREATE OR REPLACE FUNCTION compute_mark_gpus() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM compute_mark_node(node_id) FROM (
        SELECT DISTINCT unit.node_id FROM rows JOIN nodes_gpuunit unit ON unit.id = rows.unit_id) nodes;
    RETURN NULL;
END $$;
