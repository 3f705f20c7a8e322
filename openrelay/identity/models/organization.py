"""A tenant."""

from django.db import models

from openrelay.identity.accounts import ACTIVE
from openrelay.ids import new_id


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
    account_status = models.CharField(max_length=50, default=ACTIVE)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["is_platform_ops"],
                condition=models.Q(is_platform_ops=True),
                name="one_platform_ops_organization",
            ),
        ]

    def __str__(self) -> str:
        return self.name
