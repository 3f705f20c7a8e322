"""Apply a node's inventory reports: update its units, GPUs and host, and detect changes of topology."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from nodes.inventory import content_digest, find_class_contradictions, find_disk_contradiction
from nodes.models import (
    Gpu,
    GpuModel,
    GpuUnit,
    InventoryReport,
    InventoryState,
    Node,
    ReportOrder,
    TopologyGeneration,
)
from nodes.services.incidents import detect_two_hosts
from nodes.services.locking import locked
from nodes.services.owner import require_enrolled
from nodes.services.report_order import (
    Verdict,
    begin_epoch,
    judge_report,
    record_out_of_order_report,
    with_current_epoch,
)
from openrelay.audit.services.record import Actor, AuditEntry, record, record_all
from openrelay.audit.services.repeats import record_repeated
from openrelay.core.errors import Invalid

# Facts by name before and after a change.
BeforeAfter = tuple[dict[str, Any], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class InventoryResult:
    """The result of a report. `flagged` says why the report was not taken; it is empty if it was taken."""

    generation: int
    changed: bool
    flagged: str = ""


@dataclass(frozen=True, slots=True)
class InventoryDiff:
    """The changes that a report would make to a node.

    `flagged` says why the report would not be taken; it is empty if it would be. `topology` describes each
    change of topology. `has_other_changes` is true if the report would change anything at all.
    """

    flagged: str = ""
    topology: tuple[str, ...] = ()
    has_other_changes: bool = False


def preview_inventory(node: Node, report: dict[str, Any]) -> InventoryDiff:
    """Return what `apply_inventory` would change now, without changing it.

    Without the node's lock, the node may change before the report is applied. Raises Invalid
    (VALIDATION_ERROR) as `apply_inventory` does.
    """
    _require_consistent(node, report)
    content = content_digest(report)
    if report.get("sequence") == node.inventory_sequence and content == node.inventory_digest:
        return InventoryDiff()
    units = _units_by_address(node)
    if flag_reason := _order_flag_reason(node, report) or _content_flag_reason(
        node, report, had_units=bool(units)
    ):
        return InventoryDiff(flagged=flag_reason)
    if content == node.inventory_digest:
        return InventoryDiff()
    return InventoryDiff(topology=tuple(topology_changes(units, report["units"])), has_other_changes=True)


def apply_inventory(node_id: UUID, report: dict[str, Any], *, actor: Actor) -> InventoryResult:
    """Update the node's units, GPUs and host from `report`, the validated data of an Inventory.

    The topology generation increases by one if the set of units changed, or a unit's class, GPU model or GPU
    count. Health, `sellable` and the host's figures are not topology. A repeated report changes nothing. A
    report is stored with a flag and changes nothing if it is out of order, partial, or empty for a node that
    ever had a unit: a unit's absence from such a report proves nothing. A report without a `sequence` comes
    from an operator and is outside the order of the agent's reports.

    Raises Invalid NODE_DECOMMISSIONED for a node that was removed or whose announced removal time has passed,
    Invalid VALIDATION_ERROR for a report that contradicts the node's stored runtime or disk size, and
    NotFound for an unknown node.
    """
    with locked(node_id) as locked_node:
        require_enrolled(locked_node)
        node, at = locked_node.node, locked_node.at
        _require_consistent(node, report)
        content, epoch, sequence = content_digest(report), report.get("epoch", ""), report.get("sequence")
        order = _get_or_create_report_order(node)
        verdict = Verdict() if sequence is None else _judge_report(order, node, report, content, at)
        if verdict.is_repeated:
            return InventoryResult(node.topology_gen, changed=False)

        units = _units_by_address(node)
        flag_reason = verdict.flag_reason or _content_flag_reason(node, report, had_units=bool(units))
        if flag_reason:
            if verdict.flag_reason and sequence is not None:
                record_out_of_order_report(order, epoch=epoch, sequence=sequence, at=at)
            _record_flagged_report(order, node, report, flag_reason, at, actor)
            if verdict.flag_reason:
                detect_two_hosts(node, at, actor=actor)
            return InventoryResult(node.topology_gen, changed=False, flagged=flag_reason)

        if verdict.starts_count:
            begin_epoch(node.pk, epoch, current=order.current_epoch, at=at)
        if sequence is not None:
            InventoryState.objects.filter(pk=node.pk).update(epoch=epoch, last_report_at=at)
            node.inventory_sequence = sequence
        if content == node.inventory_digest:
            node.save(update_fields=["inventory_sequence"])
            return InventoryResult(node.topology_gen, changed=False)

        causes = _apply_units(node, report["units"], units, at, actor)
        host_before = _host_facts(node)
        _apply_host(node, report)
        changed_facts = {
            name: value for name, value in _host_facts(node).items() if value != host_before[name]
        }
        host = ({name: host_before[name] for name in changed_facts}, changed_facts)
        node.inventory_digest = content
        if causes:
            node.topology_gen += 1
        node.save()
        if causes:
            _open_generation(node, report, causes, host, at, actor)
            detect_two_hosts(node, at, actor=actor)
        elif changed_facts:
            _record_host(node, host, at, actor)
        return InventoryResult(node.topology_gen, changed=True)


def _units_by_address(node: Node) -> dict[str, GpuUnit]:
    """Read every present and gone unit of the node, by address."""
    rows = GpuUnit.objects.filter(node=node).select_related("gpu_model").prefetch_related("gpus")
    return {unit.address: unit for unit in rows}


def _require_consistent(node: Node, report: dict[str, Any]) -> None:
    """Raise Invalid if the report omits its runtime or disk size and contradicts the stored one."""
    if "runtime" not in report:
        for number, unit in enumerate(report["units"]):
            for why in find_class_contradictions(unit, node.runtime):
                raise Invalid(f"units[{number}].allocClass {why}.")
    host = report.get("host") or {}
    free = host.get("diskFreeGb")
    if "diskTotalGb" not in host and (why := find_disk_contradiction(node.disk_total_gb, free)):
        raise Invalid(f"host.diskFreeGb {why}. Report both figures together.")


def _get_or_create_report_order(node: Node) -> Any:
    """Return the order of the node's inventory reports, with its current epoch. Needs the node's lock."""
    rows = with_current_epoch(InventoryState.objects.filter(pk=node.pk))
    found = rows.first()
    if found is None:
        InventoryState.objects.get_or_create(node=node)
        found = rows.get()
    return found


def _judge_report(order: Any, node: Node, report: dict[str, Any], content: str, at: datetime) -> Verdict:
    return judge_report(
        order,
        last_sequence=node.inventory_sequence,
        last_content=node.inventory_digest,
        epoch=report.get("epoch", ""),
        sequence=report["sequence"],
        content=content,
        at=at,
    )


def _order_flag_reason(node: Node, report: dict[str, Any]) -> str:
    """Return why the report is out of order; empty if it is in order or has no `sequence`."""
    if "sequence" not in report:
        return ""
    order: Any = with_current_epoch(InventoryState.objects.filter(pk=node.pk)).first()
    return _judge_report(order, node, report, content_digest(report), order.now).flag_reason if order else ""


def _content_flag_reason(node: Node, report: dict[str, Any], *, had_units: bool) -> str:
    """Return why a report is not taken for its content: it is partial, or empty. Empty if it is taken."""
    in_effect = f"; report {node.inventory_sequence} stays in effect" if node.inventory_sequence else ""
    if not report["complete"]:
        return f"it is partial: the agent could not read all of its hardware{in_effect}"
    # A host that never had a GPU serves VMs without GPUs, so an empty list is correct there.
    if not report["units"] and had_units:
        return f"it lists no unit at all{in_effect}"
    return ""


def _record_flagged_report(
    order: ReportOrder, node: Node, report: dict[str, Any], flag_reason: str, at: datetime, actor: Actor
) -> None:
    """Store a report that was not taken, with an audit event.

    Stores each reason once until the next report is taken, because agents repeat a report every minute.
    """
    flagged = InventoryReport.objects.filter(node=node, flagged=flag_reason)
    if order.last_report_at is not None:
        flagged = flagged.filter(received_at__gt=order.last_report_at)
    if flagged.exists():
        return
    # Reasons that differ only in numbers count as one, and each is recorded at most once a minute.
    is_noted = record_repeated(
        actor,
        "node.report_flagged",
        same=re.sub(r"\d+", "N", flag_reason),
        target_type="node",
        target_id=node.pk,
        org_id=node.organization_id,
        after={"sequence": report.get("sequence"), "flagged": flag_reason},
    )
    if is_noted:
        InventoryReport.objects.create(
            node=node,
            sequence=report.get("sequence", node.inventory_sequence),
            flagged=flag_reason,
            received_at=at,
            content=report,
        )


def _apply_units(
    node: Node, reported: list[dict[str, Any]], units: dict[str, GpuUnit], at: datetime, actor: Actor
) -> list[str]:
    """Update the rows of units and GPUs, and return a description of each change of topology.

    Records an audit event for each unit that can or cannot be sold from now on, and for each replaced card.
    """
    causes = topology_changes(units, reported)
    models = _get_or_create_models({unit["gpus"][0]["model"] for unit in reported}, at, actor)
    changed = []
    replaced_cards: list[tuple[GpuUnit, str, str, str]] = []
    _release_iommu_groups(units, reported, at)
    for data in reported:
        model = models[data["gpus"][0]["model"]]
        unit = units.get(data["address"])
        existing_gpus = list(unit.gpus.all()) if unit is not None else []
        before = _sale_facts(unit, existing_gpus) if unit is not None and unit.gone_at is None else None
        if unit is None:
            unit = GpuUnit(node=node, address=data["address"])
        _update_row(
            unit,
            gone_at=None,
            alloc_class=data["allocClass"],
            gpu_model_id=model.pk,
            gpu_count=len(data["gpus"]),
            sellable=data["sellable"],
            not_sellable_reason="" if data["sellable"] else data.get("notSellableReason", ""),
            iommu_group=data.get("iommuGroup"),
            numa_node=data.get("numaNode"),
        )
        replaced_cards += [
            (unit, gpu.address, gpu.serial, gpu_report["serial"])
            for gpu in existing_gpus
            for gpu_report in data["gpus"]
            if gpu.address == gpu_report["address"] and _is_replaced_card(gpu, gpu_report)
        ]
        after = _sale_facts(unit, _apply_gpus(unit, data["gpus"], existing_gpus, at))
        if before not in (None, after):
            changed.append((unit, before, after))
    record_all(
        [
            AuditEntry(
                actor=actor,
                event="unit.changed",
                target_type="unit",
                target_id=unit.pk,
                org_id=node.organization_id,
                before=before,
                after={"nodeId": str(node.pk), "unitId": unit.address, **after},
                at=at,
            )
            for unit, before, after in changed
        ]
    )
    for unit, address, old, new in replaced_cards:
        # At most once a minute: two hosts that share a credential report two cards in turn.
        record_repeated(
            actor,
            "gpu.card_changed",
            same=f"{address} {old} {new}",
            target_type="unit",
            target_id=unit.pk,
            org_id=node.organization_id,
            after={
                "nodeId": str(node.pk),
                "unitId": unit.address,
                "gpu": address,
                "serialBefore": old,
                "serial": new,
            },
        )
    return causes


def _sale_facts(unit: GpuUnit, gpus: Iterable[Gpu]) -> dict[str, Any]:
    """Return the facts that, apart from topology, decide whether the unit is for sale."""
    failed = {gpu.address: gpu.failure for gpu in gpus if gpu.failed_at is not None}
    return {
        "sellable": unit.sellable,
        **({"notSellableReason": unit.not_sellable_reason} if unit.not_sellable_reason else {}),
        **({"failedGpus": dict(sorted(failed.items()))} if failed else {}),
    }


def _update_row(row: GpuUnit | Gpu, **facts: Any) -> None:
    """Save the facts that changed, if any: most of a report repeats the last one."""
    changed_facts = [name for name, value in facts.items() if getattr(row, name) != value]
    for name in changed_facts:
        setattr(row, name, facts[name])
    if row._state.adding:
        row.save(force_insert=True)
    elif changed_facts:
        row.save(update_fields=changed_facts)


def topology_changes(units: Mapping[str, GpuUnit], reported: list[dict[str, Any]]) -> list[str]:
    """Describe each change of topology in a report. `units` has the node's units by address."""
    causes = []
    for data in reported:
        unit = units.get(data["address"])
        if unit is None:
            causes.append(f"{data['address']} is new")
        elif unit.gone_at is not None:
            causes.append(f"{unit.address} is back")
        else:
            causes += _unit_changes(unit, data)
    present = {data["address"] for data in reported}
    causes += [
        f"{unit.address} is gone"
        for unit in units.values()
        if unit.address not in present and unit.gone_at is None
    ]
    return causes


def _unit_changes(unit: GpuUnit, data: dict[str, Any]) -> list[str]:
    found = []
    slug = data["gpus"][0]["model"]
    if unit.alloc_class != data["allocClass"]:
        found.append(f"{unit.address} changed class from {unit.alloc_class} to {data['allocClass']}")
    if unit.gpu_model.slug != slug:
        found.append(f"{unit.address} changed GPU model from {unit.gpu_model.slug} to {slug}")
    if unit.gpu_count != len(data["gpus"]):
        found.append(f"{unit.address} changed from {unit.gpu_count} to {len(data['gpus'])} GPUs")
    return found


def _release_iommu_groups(units: Mapping[str, GpuUnit], reported: list[dict[str, Any]], at: datetime) -> None:
    """Mark missing units as gone, and clear the IOMMU groups that move from one unit to another.

    This runs before the units get their new groups, because a unique constraint forbids two present units of
    a node with the same group.
    """
    groups = {data["address"]: data.get("iommuGroup") for data in reported}
    for unit in units.values():
        if unit.gone_at is None and unit.address not in groups:
            _update_row(unit, gone_at=at)
    moved = [
        unit
        for unit in units.values()
        if unit.gone_at is None and unit.iommu_group not in (None, groups[unit.address])
    ]
    if moved:
        GpuUnit.objects.filter(pk__in=[unit.pk for unit in moved]).update(iommu_group=None)
        for unit in moved:
            unit.iommu_group = None


def _is_replaced_card(gpu: Gpu, data: dict[str, Any]) -> bool:
    """Whether the slot has another card than before. False if either serial is unknown."""
    serial = data.get("serial", "")
    return bool(gpu.serial and serial and gpu.serial != serial)


def _apply_gpus(
    unit: GpuUnit, reported: list[dict[str, Any]], existing_gpus: list[Gpu], at: datetime
) -> list[Gpu]:
    """Update, create and delete the unit's GPU rows, and return the reported ones."""
    before = {gpu.address: gpu for gpu in existing_gpus}
    gpus = []
    for data in reported:
        gpu = before.pop(data["address"], None) or Gpu(unit=unit, address=data["address"])
        # A failure belongs to the card and not to the slot: a new card starts without it.
        is_replaced = _is_replaced_card(gpu, data)
        failed_at = None if is_replaced else gpu.failed_at
        _update_row(
            gpu,
            serial=data.get("serial") or gpu.serial,
            previous_serial=gpu.serial if is_replaced else gpu.previous_serial,
            card_changed_at=at if is_replaced else gpu.card_changed_at,
            failed_at=None if data["healthy"] else failed_at or at,
            failure="" if data["healthy"] else data.get("failure", ""),
        )
        gpus.append(gpu)
    if before:
        Gpu.objects.filter(pk__in=[gpu.pk for gpu in before.values()]).delete()
    return gpus


def _apply_host(node: Node, report: dict[str, Any]) -> None:
    node.runtime = report.get("runtime", node.runtime)
    host = report.get("host") or {}
    node.cpu_cores = host.get("cpuCores", node.cpu_cores)
    node.cpu_model = host.get("cpuModel", node.cpu_model)
    node.ram_mb = host.get("ramMb", node.ram_mb)
    node.disk_total_gb = host.get("diskTotalGb", node.disk_total_gb)
    node.disk_free_gb = host.get("diskFreeGb", node.disk_free_gb)
    if node.disk_free_gb is not None and node.disk_total_gb is not None:
        # The stored free space may exceed the new size if the report has the size alone.
        node.disk_free_gb = min(node.disk_free_gb, node.disk_total_gb)
    node.tdx_enabled = host.get("tdx", node.tdx_enabled)


def _host_facts(node: Node) -> dict[str, Any]:
    """Return the host facts whose changes are audited. Free disk space is not: it changes all the time."""
    return {
        "runtime": str(node.runtime),
        "cpuCores": node.cpu_cores,
        "cpuModel": node.cpu_model,
        "ramMb": node.ram_mb,
        "diskTotalGb": node.disk_total_gb,
        "tdx": node.tdx_enabled,
    }


def _record_host(node: Node, host: BeforeAfter, at: datetime, actor: Actor) -> None:
    before, after = host
    record(
        actor,
        "node.host_changed",
        target_type="node",
        target_id=str(node.pk),
        org_id=node.organization_id,
        before=before,
        after=after,
        at=at,
    )


def _get_or_create_models(slugs: set[str], at: datetime, actor: Actor) -> dict[str, GpuModel]:
    """Return GPU models by slug. Creates a hidden placeholder for each unknown slug."""
    found = {model.slug: model for model in GpuModel.objects.filter(slug__in=slugs)}
    for slug in sorted(slugs - found.keys()):
        placeholder = {
            "name": f"Unknown ({slug})",
            "manufacturer": "unknown",
            "vram_gb": 0,
            "hidden": True,
        }
        found[slug], new = GpuModel.objects.get_or_create(slug=slug, defaults=placeholder)
        if new:
            record(
                actor,
                "gpu_model.set",
                target_type="gpu_model",
                target_id=found[slug].pk,
                after={"slug": slug, **placeholder},
                at=at,
            )
    return found


def _open_generation(
    node: Node, report: dict[str, Any], causes: list[str], host: BeforeAfter, at: datetime, actor: Actor
) -> None:
    """Store the new topology generation with its report and units, and audit all changes."""
    saved_report = InventoryReport.objects.create(
        node=node,
        sequence=report.get("sequence", node.inventory_sequence),
        received_at=at,
        content=report,
    )
    units = GpuUnit.objects.present().filter(node=node).select_related("gpu_model").order_by("address")
    snapshot = [
        {
            "address": unit.address,
            "allocClass": unit.alloc_class,
            "gpuModel": unit.gpu_model.slug,
            "gpuModelId": str(unit.gpu_model_id),
            "gpuCount": unit.gpu_count,
        }
        for unit in units
    ]
    cause = "; ".join(causes)
    host_before, host_after = host
    TopologyGeneration.objects.create(
        node=node,
        number=node.topology_gen,
        at=at,
        report=saved_report,
        cause=cause if len(cause) <= 200 else f"{cause[:199]}…",
        units=snapshot,
    )
    record(
        actor,
        "node.topology_changed",
        target_type="node",
        target_id=str(node.pk),
        org_id=node.organization_id,
        before={"generation": node.topology_gen - 1, **host_before},
        after={
            "generation": node.topology_gen,
            "report": str(saved_report.pk),
            "changes": causes,
            **host_after,
        },
        at=at,
    )
