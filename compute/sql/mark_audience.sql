-- Statement trigger on the audience of holds: mark the nodes of the holds.
CREATE OR REPLACE FUNCTION compute_mark_audience() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM compute_mark_node(node_id) FROM (
        SELECT DISTINCT hold.node_id FROM rows JOIN nodes_hold hold ON hold.id = rows.hold_id) nodes;
    RETURN NULL;
END $$;
