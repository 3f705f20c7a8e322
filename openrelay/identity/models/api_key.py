"""What a program carries to the API."""

from django.contrib.postgres.fields import ArrayField
from django.db import models

from openrelay.core.ids import new_id
from openrelay.identity.querysets import ApiKeyQuerySet


class ApiKey(models.Model):
    """A key of one organization, with a ceiling of permissions that no role lifts."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(
        "identity.Organization", on_delete=models.CASCADE, related_name="api_keys"
    )
    name = models.CharField(max_length=200)
    note = models.TextField(blank=True)
    sha256 = models.CharField(max_length=64, unique=True, editable=False)
    prefix = models.CharField(max_length=20)
    kind = models.CharField(max_length=20, default="org")
    ephemeral = models.BooleanField(default=False)
    permissions = ArrayField(models.CharField(max_length=64), default=list)
    scopes = ArrayField(models.CharField(max_length=64), default=list, blank=True)
    ip_ranges = ArrayField(models.CharField(max_length=50), default=list, blank=True)
    endpoints = ArrayField(models.CharField(max_length=200), default=list, blank=True)
    model_ids = ArrayField(models.CharField(max_length=200), default=list, blank=True)
    budget_limit_nano_usd = models.BigIntegerField(null=True, blank=True)
    budget_period = models.CharField(max_length=10, blank=True)
    # Who made it, whose own role keeps limiting it; none for a key made at the server.
    created_by = models.ForeignKey(
        "identity.User", on_delete=models.PROTECT, null=True, blank=True, related_name="api_keys"
    )
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    objects = ApiKeyQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["organization", "-created_at", "-id"], name="apikey_org_newest")]

    def __str__(self) -> str:
        return f"{self.prefix}… {self.name}"
