"""How often an event repeated itself since it was last written, one row for each event that may repeat."""

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models


class AuditRepeat(models.Model):
    """An event that equal ones follow, such as a refused request: the next of them is only counted here until
    a minute has passed. Rows come and go with what repeats itself, so the table stays small.
    """

    # SHA-256 of what makes two events equal.
    digest = models.BinaryField(primary_key=True)
    actor = models.CharField(max_length=100)
    organization = models.ForeignKey(
        "identity.Organization", on_delete=models.CASCADE, null=True, related_name="+", db_index=False
    )
    event = models.CharField(max_length=100)
    target_type = models.CharField(max_length=50)
    target_id = models.CharField(max_length=200)
    after = models.JSONField(null=True, encoder=DjangoJSONEncoder)
    reason = models.TextField(blank=True)
    source_ip = models.CharField(max_length=45, blank=True)
    request_id = models.CharField(max_length=100, blank=True)
    server_request_id = models.UUIDField(null=True)
    shown_actor = models.CharField(max_length=100, blank=True)
    # When the event was last written, and when the time before that.
    written_at = models.DateTimeField()
    written_before_at = models.DateTimeField(null=True)
    # How many came since, and how many the last statement that touched the row wrote as one event.
    pending = models.PositiveIntegerField(default=0)
    writes = models.PositiveIntegerField(default=1)

    class Meta:
        indexes = [
            models.Index(fields=["actor"], name="audit_repeat_actor"),
            models.Index(fields=["written_at"], name="audit_repeat_written"),
        ]

    def __str__(self) -> str:
        return f"{self.event} {self.target_type} {self.target_id}"
