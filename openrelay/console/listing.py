"""A list of the console that honours only the filters and orders that it declares."""

from typing import Any

from django.contrib.admin.exceptions import DisallowedModelAdminLookup
from django.contrib.admin.views.main import ORDER_VAR
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.views import ChangeList

_ORDER_PARTS_AT_MOST = 10


class ListRefused(Exception):
    """The list was asked for with a filter, order or page that it does not have."""


class DeclaredList(ChangeList):
    """The rows of a list under its declared filters.

    Django filters by any field of the model that the query string names, which would let an operator find a
    hidden value out by asking for its prefixes. Here a parameter that no declared filter has is refused.
    """

    def get_filters_params(self, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """The filters asked for. A form sends an empty value for a filter that was not used."""
        asked: dict[str, Any] = super().get_filters_params(params)
        return {name: values for name, values in asked.items() if not isinstance(values, list) or any(values)}

    def get_filters(self, request: HttpRequest) -> tuple[list[Any], bool, dict[str, Any], bool, bool]:
        """The filters to apply. Raises DisallowedModelAdminLookup for a parameter that none of them has."""
        asked = super().get_filters_params()
        filters: tuple[list[Any], bool, dict[str, Any], bool, bool] = super().get_filters(request)
        declared = {name for each in filters[0] for name in each.expected_parameters()}
        if self.date_hierarchy:
            declared |= {f"{self.date_hierarchy}__{part}" for part in ("year", "month", "day")}
        for name in asked:
            if name not in declared:
                raise DisallowedModelAdminLookup(
                    f"This list has no filter {name[:60]!r}. Its filters are: "
                    f"{', '.join(sorted(declared)) or 'none'}."
                )
        return filters

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        """The order of the rows. Raises DisallowedModelAdminLookup for a column that cannot be ordered by."""
        wanted = self.params.get(ORDER_VAR)
        if wanted is not None:
            parts = wanted.split(".")
            if len(parts) > _ORDER_PARTS_AT_MOST or not all(self._is_order(part) for part in parts):
                raise DisallowedModelAdminLookup(
                    f"This list has no order {wanted[:60]!r}. Choose a column by its title."
                )
        order: list[Any] = super().get_ordering(request, queryset)
        return order

    def _is_order(self, part: str) -> bool:
        number = part.removeprefix("-")
        if not (number.isascii() and number.isdigit() and len(number) <= len(str(len(self.list_display)))):
            return False
        if int(number) >= len(self.list_display):
            return False
        column = self.list_display[int(number)]
        if self.sortable_by is not None and column not in self.sortable_by:
            return False
        return self.get_ordering_field(column) is not None
