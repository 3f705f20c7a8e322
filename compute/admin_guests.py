"""What guests are like inside, as far as operators may look."""

from django.contrib import admin
from unfold.contrib.filters.admin import AutocompleteSelectFilter

from compute.models import GuestState
from openrelay.console.base import FactsAdmin, LookupFilter


class SshFilter(LookupFilter):
    """Guests by whether SSH answers."""

    title = "SSH"
    parameter_name = "ssh_ready"
    choices_from = (("True", "answers"), ("False", "does not"))


@admin.register(GuestState)
class GuestStateAdmin(FactsAdmin):
    """What nodes last said of their guests. A tenant's console is not shown."""

    read_action = "compute.read"
    list_display = ("run", "workload", "node", "ssh_ready", "disk_used_bytes", "disk_total_bytes", "said_at")
    list_filter = (SshFilter, ("run__node", AutocompleteSelectFilter))
    list_select_related = ("run__workload", "run__node")
    search_fields = ("run__workload__name", "run__node__hostname")
    ordering = ("-said_at", "-pk")
    id_fields = ("pk", "run__workload", "run__node")
    exclude = ("console",)

    @admin.display(description="workload", ordering="run__workload__name")
    def workload(self, row: GuestState) -> str:
        return str(row.run.workload)

    @admin.display(description="node", ordering="run__node__hostname")
    def node(self, row: GuestState) -> str:
        return str(row.run.node)
