"""Which keys and memberships belong to whom."""

import uuid
from typing import Any, Self

from django.db import models


class ApiKeyQuerySet(models.QuerySet[Any]):
    """Queries over API keys."""

    def of_organization(self, organization_id: uuid.UUID) -> Self:
        """One organization's keys, dead ones too, newest first."""
        return self.filter(organization_id=organization_id).order_by("-created_at", "-id")


class MembershipQuerySet(models.QuerySet[Any]):
    """Queries over memberships."""

    def joined(self) -> Self:
        """Those that count: the person accepted."""
        return self.filter(joined_at__isnull=False)
