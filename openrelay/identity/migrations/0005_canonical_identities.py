"""Organizations' short names and the address ranges of keys and roles in their canonical forms."""

from typing import Any

from django.db import migrations, models

from openrelay.core import canonical


def rename(apps: Any, schema_editor: Any) -> None:
    organizations = apps.get_model("identity", "Organization")
    for row in organizations.objects.exclude(slug__regex=canonical.SLUG_PATTERN).order_by("created_at"):
        name = canonical.slug(row.slug.strip("-_."))
        if name is None or organizations.objects.filter(slug=name).exists():
            name = f"{(name or 'org')[:80]}-{str(row.pk)[-12:]}"
        organizations.objects.filter(pk=row.pk).update(slug=name)
    for model in ("ApiKey", "Role"):
        rows = apps.get_model("identity", model).objects
        for row in rows.exclude(ip_ranges=[]):
            # They were stored without host bits. What is unknown matches nothing, as before.
            ranges = [str(canonical.network(text) or text) for text in row.ip_ranges]
            if ranges != row.ip_ranges:
                rows.filter(pk=row.pk).update(ip_ranges=ranges)
    schema_editor.execute("SET CONSTRAINTS ALL IMMEDIATE")


class Migration(migrations.Migration):
    dependencies = [("identity", "0004_accounts")]

    operations = [
        migrations.RunPython(rename, migrations.RunPython.noop),
        migrations.AddConstraint(
            model_name="organization",
            constraint=models.CheckConstraint(
                condition=models.Q(slug__regex=canonical.SLUG_PATTERN), name="organization_slug_canonical"
            ),
        ),
    ]
