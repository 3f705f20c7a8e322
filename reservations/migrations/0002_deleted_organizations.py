from django.db import migrations

# A deleted organization gets no workload, reservation or node. Its row is locked against being deleted until the
# transaction ends, as by a foreign key: whoever deletes it takes FOR UPDATE, and waits or is waited for. So what is
# written here is seen by who deletes it, or refused.
FUNCTION = """
CREATE FUNCTION identity_refuse_deleted_organization() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    ended timestamptz;
BEGIN
    SELECT deleted_at INTO ended FROM identity_organization WHERE id = NEW.organization_id FOR KEY SHARE;
    IF ended IS NOT NULL THEN
        RAISE EXCEPTION 'organization % was deleted', NEW.organization_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'organization_is_not_deleted', TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NEW;
END
$$;
"""
LIVE = "('pending', 'deploying', 'running', 'interrupted')"
TRIGGERS = {
    "compute_workload": (
        "INSERT",
        f"UPDATE OF status|NEW.status IN {LIVE} AND OLD.status NOT IN {LIVE}",
    ),
    "nodes_holdaudience": ("INSERT",),
    "reservations_reservationmanager": ("INSERT",),
    "nodes_node": ("INSERT", "UPDATE OF removed_at|NEW.removed_at IS NULL AND OLD.removed_at IS NOT NULL"),
}


def _trigger(table: str, number: int, event: str) -> migrations.RunSQL:
    event, _, condition = event.partition("|")
    name = f"{table}_not_of_deleted_{number}"
    when = f"WHEN ({condition})" if condition else ""
    return migrations.RunSQL(
        f"CREATE TRIGGER {name} BEFORE {event} ON {table} FOR EACH ROW {when} "
        "EXECUTE FUNCTION identity_refuse_deleted_organization()",
        f"DROP TRIGGER {name} ON {table}",
    )


class Migration(migrations.Migration):
    dependencies = [
        ("identity", "0004_accounts"),
        ("nodes", "0003_leaving_fabrics_applications"),
        ("compute", "0014_offers_with_kept_shares"),
        ("reservations", "0001_initial"),
    ]
    operations = [
        migrations.RunSQL(FUNCTION, "DROP FUNCTION identity_refuse_deleted_organization()"),
        *(
            _trigger(table, number, event)
            for table, events in TRIGGERS.items()
            for number, event in enumerate(events)
        ),
    ]
