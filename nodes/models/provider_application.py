"""Applications of organizations to become providers."""

from django.db import models
from django.db.models import Q

from openrelay.core.ids import new_id


class ProviderApplication(models.Model):
    """One application of an organization, and the operators' decision. It is pending until they decide."""

    PENDING, APPROVED, REJECTED = "pending", "approved", "rejected"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(
        "identity.Organization", models.PROTECT, related_name="provider_applications"
    )
    note = models.TextField()
    submitted_by = models.CharField(max_length=80)
    submitted_at = models.DateTimeField()
    approved = models.BooleanField(null=True, blank=True, help_text="null until it is decided")
    decided_by = models.CharField(max_length=80, blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-submitted_at", "-id")
        constraints = [
            models.UniqueConstraint(
                fields=["organization"], condition=Q(decided_at=None), name="one_pending_application"
            ),
            models.CheckConstraint(
                condition=Q(approved=None, decided_at=None, decided_by="")
                | (Q(approved__isnull=False, decided_at__isnull=False) & ~Q(decided_by="")),
                name="application_decided_whole",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.status} since {self.submitted_at}"

    @property
    def status(self) -> str:
        """`pending`, `approved` or `rejected`."""
        if self.approved is None:
            return self.PENDING
        return self.APPROVED if self.approved else self.REJECTED
