"""Filters of the console's lists that refuse a value that they cannot apply."""

from typing import Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from unfold.contrib.filters.admin import RangeDateTimeFilter
from unfold.utils import parse_datetime_str


class TimeRangeFilter(RangeDateTimeFilter):
    """Rows within a range of times. A date without a time means the whole day."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows in the range. Raises IncorrectLookupParameters for what is not a date and time."""
        bounds = {
            f"{self.parameter_name}__gte": self._time("from", "00:00:00"),
            f"{self.parameter_name}__lte": self._time("to", "23:59:59.999999"),
        }
        return queryset.filter(**{lookup: at for lookup, at in bounds.items() if at is not None})

    def _time(self, end: str, time_if_missing: str) -> Any:
        date = self.used_parameters.get(f"{self.parameter_name}_{end}_0") or ""
        time = self.used_parameters.get(f"{self.parameter_name}_{end}_1") or ""
        if not date and not time:
            return None
        at = parse_datetime_str(f"{date} {time or time_if_missing}")
        if at is None:
            raise IncorrectLookupParameters(f"{self.title}: {date} {time} is not a date and time")
        return timezone.make_aware(at)
