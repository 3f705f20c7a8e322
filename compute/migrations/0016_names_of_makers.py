"""Makers of GPUs by the names that they have for themselves, in templates as in the catalogue."""

from typing import Any

from django.db import migrations


def name_makers(apps: Any, schema_editor: Any) -> None:
    templates = apps.get_model("compute", "VmTemplate").objects
    for name in ("NVIDIA", "AMD", "Intel"):
        templates.filter(manufacturer__iexact=name).update(manufacturer=name)


class Migration(migrations.Migration):
    dependencies = [("compute", "0015_offers_without_failed_units")]

    operations = [migrations.RunPython(name_makers, migrations.RunPython.noop)]
