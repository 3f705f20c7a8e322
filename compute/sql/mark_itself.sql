-- Row trigger on nodes: mark the node itself.
CREATE OR REPLACE FUNCTION compute_mark_itself() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM compute_mark_node(NEW.id);
    RETURN NULL;
END $$;
