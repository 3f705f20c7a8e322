"""A person's place in an organization."""

from django.db import models

from openrelay.core.ids import new_id
from openrelay.identity.querysets import MembershipQuerySet


class Membership(models.Model):
    """A person in an organization with one role; invited until they join."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey("identity.User", on_delete=models.CASCADE, related_name="memberships")
    organization = models.ForeignKey(
        "identity.Organization", on_delete=models.CASCADE, related_name="memberships"
    )
    # A built-in role's id, or one of the organization's own roles: always exactly one of the two.
    role = models.CharField(max_length=64, blank=True)
    custom_role = models.ForeignKey(
        "identity.Role", on_delete=models.RESTRICT, null=True, blank=True, related_name="memberships"
    )
    invited_at = models.DateTimeField()
    joined_at = models.DateTimeField(null=True, blank=True)

    objects = MembershipQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["user", "organization"], name="one_membership_a_person_and_organization"
            ),
            models.CheckConstraint(
                condition=models.Q(role="", custom_role__isnull=False)
                | (~models.Q(role="") & models.Q(custom_role__isnull=True)),
                name="membership_has_one_role",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} {self.role_id} in {self.organization_id}"

    @property
    def role_id(self) -> str:
        """The id of the role held, as the API writes it."""
        return str(self.custom_role_id) if self.custom_role_id else self.role
