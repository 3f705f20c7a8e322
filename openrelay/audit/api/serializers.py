"""What the audit log's list takes."""

from openrelay.api.pagination import PageQuery
from openrelay.api.serializers import StrictCharField, TimeField


class AuditQuery(PageQuery):
    """Filters, each exact; `since` is included, `until` is not."""

    actor = StrictCharField(required=False, max_length=100)
    event = StrictCharField(required=False, max_length=100)
    targetId = StrictCharField(required=False, max_length=200, source="target_id")
    since = TimeField(required=False)
    until = TimeField(required=False)
