"""The regions that workloads prefer, in the form that nodes' migration 0004 gave to those of locations."""

from typing import Any

from django.db import migrations

from openrelay.core import canonical


def rename(apps: Any, schema_editor: Any) -> None:
    workloads = apps.get_model("compute", "Workload").objects
    rows = workloads.exclude(preferred_regions=[]).values_list("pk", "preferred_regions")
    for pk, before in list(rows):
        regions = list(dict.fromkeys(_canonical(region) for region in before))
        if regions != before:
            workloads.filter(pk=pk).update(preferred_regions=regions)


def _canonical(region: str) -> str:
    return canonical.slug("-".join(region.split())) or "unknown"


class Migration(migrations.Migration):
    dependencies = [
        ("compute", "0017_report_order"),
        ("nodes", "0004_canonical_identities"),
    ]

    operations = [migrations.RunPython(rename, migrations.RunPython.noop)]
