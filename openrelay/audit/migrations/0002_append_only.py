from django.db import migrations

# Rows of the audit log are only added. The one way out is retention, which says so for its own transaction
# (SET LOCAL openrelay.audit_retention = 'on') and may then delete; nothing may update or truncate.
FORWARDS = """
CREATE FUNCTION openrelay_audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('openrelay.audit_retention', true) = 'on' THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'the audit log is append-only: % is refused', TG_OP USING ERRCODE = 'insufficient_privilege';
END
$$;
CREATE TRIGGER audit_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_auditevent
    FOR EACH STATEMENT EXECUTE FUNCTION openrelay_audit_is_append_only();
"""
BACKWARDS = """
DROP TRIGGER audit_is_append_only ON audit_auditevent;
DROP FUNCTION openrelay_audit_is_append_only();
"""


class Migration(migrations.Migration):
    dependencies = [("audit", "0001_initial")]
    operations = [migrations.RunSQL(FORWARDS, BACKWARDS)]
