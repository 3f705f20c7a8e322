"""A role that an organization made for itself."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Lower

from openrelay.core.ids import new_id
from openrelay.identity.querysets import RoleQuerySet
from openrelay.identity.roles import HeldRole


class Role(models.Model):
    """A set of permissions of one organization, with conditions on whatever its holders do."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(
        "identity.Organization", on_delete=models.CASCADE, related_name="own_roles"
    )
    name = models.CharField(max_length=100)
    description = models.TextField(blank=True)
    permissions = ArrayField(models.CharField(max_length=64), default=list)
    ip_ranges = ArrayField(models.CharField(max_length=50), default=list, blank=True)
    endpoints = ArrayField(models.CharField(max_length=200), default=list, blank=True)
    model_ids = ArrayField(models.CharField(max_length=200), default=list, blank=True)
    created_by = models.ForeignKey("identity.User", on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField()
    updated_by = models.ForeignKey("identity.User", on_delete=models.PROTECT, related_name="+")
    updated_at = models.DateTimeField()

    objects = RoleQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint("organization", Lower("name"), name="role_name_once_an_organization"),
            # What a membership's composite foreign key points at.
            models.UniqueConstraint(fields=["id", "organization"], name="role_with_its_organization"),
        ]

    def __str__(self) -> str:
        return self.name

    def held(self) -> HeldRole:
        """The role as its holders have it."""
        return HeldRole(
            id=str(self.pk),
            name=self.name,
            custom=True,
            permissions=tuple(self.permissions),
            ip_ranges=tuple(self.ip_ranges),
            endpoints=tuple(self.endpoints),
            models=tuple(self.model_ids),
        )
