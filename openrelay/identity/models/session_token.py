"""What a signed-in person carries to the API."""

from django.db import models

from openrelay.core.ids import new_id


class SessionToken(models.Model):
    """A person acting in one organization, until it expires or is revoked."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    sha256 = models.CharField(max_length=64, unique=True, editable=False)
    user = models.ForeignKey("identity.User", on_delete=models.CASCADE, related_name="session_tokens")
    organization = models.ForeignKey("identity.Organization", on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"session {self.id}"
