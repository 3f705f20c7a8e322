"""Which audit events a caller sees."""

import uuid
from typing import Any, Self

from django.db import models


class AuditEventQuerySet(models.QuerySet[Any]):
    """Queries over the audit log."""

    def of_organization(self, organization_id: uuid.UUID) -> Self:
        """The events in one organization's log."""
        return self.filter(organization_id=organization_id)
