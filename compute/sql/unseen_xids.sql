-- The transactions below the snapshot's upper bound that it does not see: those that ran when it was taken,
-- and the current one, whose changes are in no snapshot of its own.
CREATE OR REPLACE FUNCTION compute_unseen_xids(taken pg_snapshot) RETURNS bigint[] LANGUAGE sql STABLE AS $$
    SELECT array_append(
        ARRAY(SELECT xip::text::bigint FROM pg_snapshot_xip(taken) xip),
        pg_current_xact_id_if_assigned()::text::bigint)
$$;
