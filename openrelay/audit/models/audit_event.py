"""One thing that happened. Rows are only ever added: a trigger refuses UPDATE, DELETE and TRUNCATE."""

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models

from openrelay.audit.querysets import AuditEventQuerySet
from openrelay.core.ids import new_id


class NewPosition(models.Func):
    """The position of a row that the current transaction adds; a function of the database."""

    function = "openrelay_audit_position"
    arity = 0
    output_field = models.BigIntegerField()


class AuditEvent(models.Model):
    """Who did what to which object, with the object's state on both sides where there is one."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    created_at = models.DateTimeField()
    actor = models.CharField(max_length=100)
    # The organization whose log shows the event; none for what concerns the platform alone.
    organization = models.ForeignKey(
        "identity.Organization", on_delete=models.PROTECT, null=True, related_name="+", db_index=False
    )
    event = models.CharField(max_length=100)
    target_type = models.CharField(max_length=50)
    target_id = models.CharField(max_length=200)
    before = models.JSONField(null=True, encoder=DjangoJSONEncoder)
    after = models.JSONField(null=True, encoder=DjangoJSONEncoder)
    reason = models.TextField(blank=True)
    source_ip = models.CharField(max_length=45, blank=True)
    # As the client named the request, and as the server did; what one request changes shares both.
    request_id = models.CharField(max_length=100, blank=True)
    server_request_id = models.UUIDField(null=True)
    # The actor as `organization` reads it, see `Actor.name_for`.
    shown_actor = models.CharField(max_length=100, blank=True)
    # Grows in the order of commits, as far as a reader can see: see `openrelay_audit_settled`.
    position = models.BigIntegerField(db_default=NewPosition(), editable=False)

    objects = AuditEventQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="audit_newest"),
            models.Index(fields=["organization", "-created_at", "-id"], name="audit_org_newest"),
            models.Index(fields=["organization", "event", "-created_at", "-id"], name="audit_org_event"),
            models.Index(
                fields=["organization", "shown_actor", "-created_at", "-id"], name="audit_org_shown_actor"
            ),
            models.Index(fields=["position", "id"], name="audit_position"),
            models.Index(fields=["organization", "position", "id"], name="audit_org_position"),
            # A target belongs to one log or two, so this one serves every organization's filter as well.
            models.Index(fields=["target_id", "-created_at", "-id"], name="audit_target"),
        ]

    def __str__(self) -> str:
        return f"{self.event} {self.target_type} {self.target_id}"
