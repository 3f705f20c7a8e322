-- Statement trigger: mark every node as changed.
CREATE OR REPLACE FUNCTION compute_mark_every_node() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM compute_mark_node('00000000-0000-0000-0000-000000000000');
    RETURN NULL;
END $$;
