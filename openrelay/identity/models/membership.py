"""A person's place in an organization."""

from django.db import models

from openrelay.identity.querysets import MembershipQuerySet
from openrelay.ids import new_id


class Membership(models.Model):
    """A person in an organization with one role; invited until they join."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey("identity.User", on_delete=models.CASCADE, related_name="memberships")
    organization = models.ForeignKey(
        "identity.Organization", on_delete=models.CASCADE, related_name="memberships"
    )
    role = models.CharField(max_length=64)
    invited_at = models.DateTimeField()
    joined_at = models.DateTimeField(null=True, blank=True)

    objects = MembershipQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["user", "organization"], name="one_membership_a_person_and_organization"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} {self.role} in {self.organization_id}"
