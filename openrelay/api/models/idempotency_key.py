"""An answer kept for a request that may come again."""

from django.db import models

from openrelay.core.ids import new_id


class IdempotencyKey(models.Model):
    """The 2xx answer to the first request with a key, kept for 24 hours per organization and key."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey("identity.Organization", on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64)
    answer = models.JSONField()
    created_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "key"], name="one_answer_an_organization_and_key"
            ),
        ]

    def __str__(self) -> str:
        return self.key
