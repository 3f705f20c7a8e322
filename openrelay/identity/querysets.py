"""Which keys, roles and memberships belong to whom."""

import uuid
from typing import Any, Self

from django.db import models
from django.db.models.functions import Lower


class OrganizationQuerySet(models.QuerySet[Any]):
    """Queries over organizations."""

    def live(self) -> Self:
        """Organizations that were not deleted."""
        return self.filter(deleted_at=None)


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

    def of_organization(self, organization_id: uuid.UUID) -> Self:
        """One organization's, who was invited first before who came later."""
        return self.filter(organization_id=organization_id).order_by("invited_at", "id")

    def holders(self, organization_id: uuid.UUID) -> dict[str, int]:
        """How many people hold each role of an organization, by the role's id; invited ones count."""
        rows = self.filter(organization_id=organization_id).values_list("role", "custom_role")
        return {
            str(custom) if custom else role: number
            for role, custom, number in rows.annotate(number=models.Count("id")).order_by()
        }


class RoleQuerySet(models.QuerySet[Any]):
    """Queries over the roles that organizations made."""

    def of_organization(self, organization_id: uuid.UUID) -> Self:
        """One organization's own roles by name."""
        return self.filter(organization_id=organization_id).order_by(Lower("name"), "id")
