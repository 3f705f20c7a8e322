from django.db import migrations, models

import openrelay.audit.models.audit_event

# A position is the epoch of the database's life and the id of the writing transaction: 15 and 48 bits. A
# transaction id alone would not do: a dump that is restored elsewhere brings rows whose ids are above those
# that the new server gives. The epoch's row tells: the id of the transaction that wrote it is no longer what
# the row itself says. The first event that is written there begins the next epoch.
#
# Rows of transactions that may still be running, and those of any that will begin, are at or above
# openrelay_audit_settled(); below it nothing is ever added.
FORWARDS = """
CREATE TABLE audit_epoch (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    epoch bigint NOT NULL,
    written_by bigint NOT NULL
);
INSERT INTO audit_epoch (epoch, written_by) VALUES (1, 0);
UPDATE audit_epoch SET written_by = xmin::text::bigint;
CREATE FUNCTION openrelay_audit_settled() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT ((epoch + CASE WHEN xmin::text::bigint = written_by THEN 0 ELSE 1 END) << 48)
           + pg_snapshot_xmin(pg_current_snapshot())::text::bigint
    FROM audit_epoch
$$;
CREATE FUNCTION openrelay_audit_position() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    current bigint;
BEGIN
    SELECT epoch INTO current FROM audit_epoch WHERE xmin::text::bigint = written_by;
    IF NOT FOUND THEN
        -- Of many at once one begins the epoch, and the others wait for it.
        UPDATE audit_epoch SET epoch = epoch + 1 WHERE xmin::text::bigint <> written_by;
        IF FOUND THEN
            UPDATE audit_epoch SET written_by = xmin::text::bigint;
        END IF;
        SELECT epoch INTO current FROM audit_epoch;
    END IF;
    RETURN (current << 48) + pg_current_xact_id()::text::bigint;
END
$$;
"""
BACKWARDS = """
DROP FUNCTION openrelay_audit_position();
DROP FUNCTION openrelay_audit_settled();
DROP TABLE audit_epoch;
"""
# Events from before this migration are at position 0, in the order of its ids, which is that of its times. Whose actors were
# the log's own is known of its keys, and of people by their being members.
OLD_ROWS = """
ALTER TABLE audit_auditevent DISABLE TRIGGER audit_is_append_only;
UPDATE audit_auditevent event SET shown_actor = CASE
    WHEN actor = 'system' THEN actor
    WHEN organization_id IS NOT NULL AND (
        EXISTS (SELECT FROM identity_apikey key
                WHERE event.actor = 'key:' || key.id AND key.organization_id = event.organization_id)
        OR EXISTS (SELECT FROM identity_membership member
                   WHERE event.actor = 'user:' || member.user_id
                     AND member.organization_id = event.organization_id)
    ) THEN actor
    ELSE 'platform' END;
ALTER TABLE audit_auditevent ENABLE TRIGGER audit_is_append_only;
"""


class Migration(migrations.Migration):
    dependencies = [("audit", "0003_audit_repeat"), ("identity", "0004_accounts")]

    operations = [
        migrations.RunSQL(FORWARDS, BACKWARDS),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "ALTER TABLE audit_auditevent ADD COLUMN position bigint NOT NULL DEFAULT 0;"
                    "ALTER TABLE audit_auditevent ALTER COLUMN position SET DEFAULT openrelay_audit_position()",
                    "ALTER TABLE audit_auditevent DROP COLUMN position",
                )
            ],
            state_operations=[
                migrations.AddField(
                    "auditevent",
                    "position",
                    models.BigIntegerField(
                        db_default=openrelay.audit.models.audit_event.NewPosition(), editable=False
                    ),
                )
            ],
        ),
        migrations.AddField("auditevent", "server_request_id", models.UUIDField(null=True)),
        migrations.AddField(
            "auditevent",
            "shown_actor",
            models.CharField(blank=True, max_length=100, default=""),
            preserve_default=False,
        ),
        migrations.AddField("auditrepeat", "server_request_id", models.UUIDField(null=True)),
        migrations.AddField(
            "auditrepeat",
            "shown_actor",
            models.CharField(blank=True, max_length=100, default=""),
            preserve_default=False,
        ),
        migrations.RunSQL(OLD_ROWS, migrations.RunSQL.noop),
        migrations.RemoveIndex("auditevent", "audit_org_actor"),
        migrations.AddIndex(
            "auditevent",
            models.Index(
                fields=["organization", "shown_actor", "-created_at", "-id"], name="audit_org_shown_actor"
            ),
        ),
        migrations.AddIndex("auditevent", models.Index(fields=["position", "id"], name="audit_position")),
        migrations.AddIndex(
            "auditevent", models.Index(fields=["organization", "position", "id"], name="audit_org_position")
        ),
    ]
