"""A tenant."""

from django.db import models

from openrelay.core.canonical import SLUG_PATTERN
from openrelay.core.ids import new_id
from openrelay.identity.accounts import status_of
from openrelay.identity.querysets import OrganizationQuerySet


class Organization(models.Model):
    """An organization. One is the platform ops organization, whose people and keys are the operators."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=200)
    slug = models.SlugField(max_length=100, unique=True)
    short_id = models.CharField(max_length=20, unique=True)
    is_platform_ops = models.BooleanField(default=False)
    is_provider = models.BooleanField(default=False)
    reservations_enabled = models.BooleanField(default=True)
    # Whether its VMs may be stopped; pods always may.
    stop_enabled = models.BooleanField(default=True)
    infiniband_enabled = models.BooleanField(default=False)
    # Whether its own persistent nodes may announce that they will leave.
    leave_notices_enabled = models.BooleanField(default=False)
    # What operators say it has left, in cents; unknown until they say.
    balance_cents = models.BigIntegerField(null=True, blank=True)
    billing_email = models.EmailField(blank=True)
    plan = models.CharField(max_length=50, default="standard")
    created_at = models.DateTimeField()
    suspended_at = models.DateTimeField(null=True, blank=True, help_text="when operators suspended it")
    balance_low_at = models.DateTimeField(
        null=True, blank=True, help_text="when it was told that its balance is low; null while it is not"
    )
    balance_depleted_at = models.DateTimeField(
        null=True, blank=True, help_text="when it was told that its balance is used up; null while it is not"
    )
    deleted_at = models.DateTimeField(
        null=True, blank=True, help_text="when it was deleted; its row, log and usage stay"
    )

    objects = OrganizationQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["is_platform_ops"],
                condition=models.Q(is_platform_ops=True),
                name="one_platform_ops_organization",
            ),
            models.CheckConstraint(
                condition=models.Q(is_platform_ops=False) | models.Q(deleted_at=None),
                name="platform_ops_organization_stays",
            ),
            models.CheckConstraint(
                condition=models.Q(balance_cents__isnull=False)
                | models.Q(balance_low_at=None, balance_depleted_at=None),
                name="no_balance_is_not_used_up",
            ),
            models.CheckConstraint(
                condition=models.Q(slug__regex=SLUG_PATTERN), name="organization_slug_canonical"
            ),
        ]
        indexes = [
            # For the sweeps: few of all there are.
            models.Index(
                fields=["suspended_at"],
                condition=models.Q(suspended_at__isnull=False),
                name="org_suspended",
            ),
            models.Index(
                fields=["balance_depleted_at"],
                condition=models.Q(balance_depleted_at__isnull=False),
                name="org_balance_depleted",
            ),
            models.Index(
                fields=["balance_low_at"],
                condition=models.Q(balance_low_at__isnull=False),
                name="org_balance_low",
            ),
            models.Index(
                fields=["deleted_at"], condition=models.Q(deleted_at__isnull=False), name="org_deleted"
            ),
        ]

    @property
    def account_status(self) -> str:
        """How the account stands, as the organization is shown it; see `accounts.status_of`."""
        return status_of(
            suspended_at=self.suspended_at,
            balance_depleted_at=self.balance_depleted_at,
            balance_low_at=self.balance_low_at,
        )

    def __str__(self) -> str:
        return self.name
