-- Row trigger: mark the node of the row before and after.
CREATE OR REPLACE FUNCTION compute_mark_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN PERFORM compute_mark_node(OLD.node_id); END IF;
    IF TG_OP <> 'DELETE' THEN PERFORM compute_mark_node(NEW.node_id); END IF;
    RETURN NULL;
END $$;
