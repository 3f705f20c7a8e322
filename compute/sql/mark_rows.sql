-- Statement trigger: mark the nodes of the changed rows.
CREATE OR REPLACE FUNCTION compute_mark_rows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM compute_mark_node(node_id) FROM (SELECT DISTINCT node_id FROM rows) nodes;
    RETURN NULL;
END $$;
