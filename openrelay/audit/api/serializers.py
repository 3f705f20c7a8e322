"""What the audit log's list takes."""

from openrelay.api.pagination import PageQuery
from openrelay.api.serializers import StrictCharField, TimeField

#: The filters, with their names in the query.
FILTERS = {"actor": "actor", "event": "event", "target_id": "targetId", "since": "since", "until": "until"}


class AuditQuery(PageQuery):
    """Filters, each exact; `since` is included, `until` is not. `after` goes without any."""

    actor = StrictCharField(required=False, max_length=100)
    event = StrictCharField(required=False, max_length=100)
    targetId = StrictCharField(required=False, max_length=200, source="target_id")
    since = TimeField(required=False)
    until = TimeField(required=False)
    after = StrictCharField(required=False, max_length=500, allow_blank=True)
