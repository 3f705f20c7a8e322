"""SSH keys: the public keys that may log in to guests."""

from django.db import models

from compute.querysets import SshKeyQuerySet
from openrelay.core.ids import new_id


class SshKey(models.Model):
    """One public key of an organization, in its canonical form: type, base64, comment."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey("identity.Organization", models.PROTECT, related_name="ssh_keys")
    name = models.CharField(max_length=128)
    public_key = models.TextField()
    fingerprint = models.CharField(max_length=64, help_text="SHA256:… as ssh-keygen prints it")
    created_by = models.CharField(max_length=80)
    created_at = models.DateTimeField()

    objects = SshKeyQuerySet.as_manager()

    class Meta:
        ordering = ("-created_at", "-id")
        constraints = [
            models.UniqueConstraint(fields=["organization", "fingerprint"], name="ssh_key_once_an_org")
        ]
        indexes = [models.Index(fields=["organization", "-created_at", "-id"], name="ssh_key_org_newest")]

    def __str__(self) -> str:
        return self.name
