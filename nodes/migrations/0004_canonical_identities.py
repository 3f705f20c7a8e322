"""Identities in their canonical forms, and one IOMMU group of a node in one unit.

A row of another spelling is renamed. Where the canonical one is there too, both named one thing: a unit is
marked as gone, in a new topology generation, so that an operator reviews its node; a GPU's second row is
deleted; a node, model, place or fabric gets a name of its own and is left for an operator to remove.
"""

from typing import Any

from django.db import migrations, models
from django.db.models.functions import Now

from openrelay.core import canonical
from openrelay.core.ids import new_id


def rename(apps: Any, schema_editor: Any) -> None:
    _rename_hosts(apps.get_model("nodes", "Node"))
    for place in apps.get_model("nodes", "Location").objects.exclude(region__regex=canonical.SLUG_PATTERN):
        place.region = canonical.slug("-".join(place.region.split())) or "unknown"
        place.save(update_fields=["region"])
    for name in ("Location", "Fabric", "GpuModel"):
        _rename_slugs(apps.get_model("nodes", name))
    models_of = apps.get_model("nodes", "GpuModel").objects
    for name in ("NVIDIA", "AMD", "Intel"):
        models_of.filter(manufacturer__iexact=name).update(manufacturer=name)
    _rename_gpus(apps.get_model("nodes", "Gpu"))
    for node_id, causes in sorted(_rename_units(apps.get_model("nodes", "GpuUnit")).items()):
        _open_generation(apps, node_id, causes)
    # Altering a table is refused while its foreign keys are still to be compared.
    schema_editor.execute("SET CONSTRAINTS ALL IMMEDIATE")


def _own_name(form: str | None, pk: object) -> str:
    return f"{form or 'unnamed'}-{str(pk)[-12:]}"


def _rename_hosts(nodes: Any) -> None:
    # Live ones first: of a removed node's name there may be many.
    for node in nodes.objects.order_by("-removed_at", "created_at"):
        name = canonical.host_name(node.hostname)
        if name == node.hostname:
            continue
        others = nodes.objects.filter(organization_id=node.organization_id, hostname=name, removed_at=None)
        taken = node.removed_at is None and others.exclude(pk=node.pk).exists()
        nodes.objects.filter(pk=node.pk).update(
            hostname=_own_name(name, node.pk)[-253:] if taken or name is None else name
        )


def _rename_slugs(rows: Any) -> None:
    for row in rows.objects.order_by("pk"):
        name = canonical.slug("-".join(row.slug.split()))
        if name == row.slug:
            continue
        if name is None or rows.objects.filter(slug=name).exists():
            name = _own_name(name and name[:48], row.pk)
        rows.objects.filter(pk=row.pk).update(slug=name)


def _rename_gpus(gpus: Any) -> None:
    for gpu in gpus.objects.exclude(address__regex=canonical.PCI_ADDRESS_PATTERN):
        address = canonical.pci_address(gpu.address)
        if gpus.objects.filter(unit_id=gpu.unit_id, address=address).exists():
            gpu.delete()
        else:
            gpus.objects.filter(pk=gpu.pk).update(address=address)


def _rename_units(units: Any) -> dict[Any, list[str]]:
    """Rename the units, and mark as gone those that were there twice; returns the latter by node."""
    gone: dict[Any, list[str]] = {}

    def drop(unit: Any, why: str) -> None:
        units.objects.filter(pk=unit.pk).update(gone_at=Now())
        gone.setdefault(unit.node_id, []).append(f"{unit.address} is gone: {why}")

    for unit in units.objects.exclude(address__regex=canonical.PCI_ADDRESS_PATTERN):
        address = canonical.pci_address(unit.address)
        if not units.objects.filter(node_id=unit.node_id, address=address).exists():
            units.objects.filter(pk=unit.pk).update(address=address)
        elif unit.gone_at is None:
            drop(unit, f"it is {address}")
    seen: dict[tuple[Any, int], str] = {}
    grouped = units.objects.filter(gone_at=None, iommu_group__isnull=False)
    for unit in grouped.order_by("node_id", "address"):
        first = seen.setdefault((unit.node_id, unit.iommu_group), unit.address)
        if first != unit.address:
            drop(unit, f"IOMMU group {unit.iommu_group} is of {first}")
    return gone


def _open_generation(apps: Any, node_id: Any, causes: list[str]) -> None:
    nodes, units = apps.get_model("nodes", "Node"), apps.get_model("nodes", "GpuUnit")
    # The next report is taken whatever it says: it has the units as they are.
    nodes.objects.filter(pk=node_id).update(topology_gen=models.F("topology_gen") + 1, inventory_digest="")
    apps.get_model("nodes", "TopologyGeneration").objects.create(
        id=new_id(),
        node_id=node_id,
        number=nodes.objects.get(pk=node_id).topology_gen,
        at=Now(),
        cause="; ".join(causes)[:200],
        units=[
            {
                "address": unit.address,
                "allocClass": unit.alloc_class,
                "gpuModel": unit.gpu_model.slug,
                "gpuModelId": str(unit.gpu_model_id),
                "gpuCount": unit.gpu_count,
            }
            for unit in units.objects.filter(node_id=node_id, gone_at=None)
            .select_related("gpu_model")
            .order_by("address")
        ],
    )


class Migration(migrations.Migration):
    dependencies = [("nodes", "0003_leaving_fabrics_applications")]

    operations = [
        migrations.RunPython(rename, migrations.RunPython.noop),
        *(
            migrations.AddConstraint(
                model_name=model,
                constraint=models.CheckConstraint(
                    condition=models.Q((f"{field}__regex", canonical.SLUG_PATTERN)), name=name
                ),
            )
            for model, field, name in (
                ("fabric", "slug", "fabric_slug_canonical"),
                ("gpumodel", "slug", "gpu_model_slug_canonical"),
                ("location", "region", "location_region_canonical"),
                ("location", "slug", "location_slug_canonical"),
            )
        ),
        migrations.AddConstraint(
            model_name="gpu",
            constraint=models.CheckConstraint(
                condition=models.Q(address__regex=canonical.PCI_ADDRESS_PATTERN), name="gpu_address_canonical"
            ),
        ),
        migrations.AddConstraint(
            model_name="gpuunit",
            constraint=models.CheckConstraint(
                condition=models.Q(address__regex=canonical.PCI_ADDRESS_PATTERN)
                | models.Q(gone_at__isnull=False),
                name="unit_address_canonical",
            ),
        ),
        migrations.AddConstraint(
            model_name="gpuunit",
            constraint=models.UniqueConstraint(
                condition=models.Q(gone_at=None, iommu_group__isnull=False),
                fields=["node", "iommu_group"],
                name="unit_iommu_group_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="node",
            constraint=models.CheckConstraint(
                condition=models.Q(hostname__regex=canonical.HOST_NAME_PATTERN),
                name="node_hostname_canonical",
            ),
        ),
    ]
