-- Mark a node as changed by the current transaction.
CREATE OR REPLACE FUNCTION compute_mark_node(node uuid) RETURNS void LANGUAGE sql AS $$
    INSERT INTO compute_nodechange AS known (node_id, xid)
    SELECT node, pg_current_xact_id()::text::bigint WHERE node IS NOT NULL
    ON CONFLICT (node_id) DO UPDATE SET xid = excluded.xid WHERE known.xid <> excluded.xid
$$;
