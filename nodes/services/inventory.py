"""Taking a node's account of its hardware, and noticing what of it is topology."""

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

# What some facts were and what they became.
BeforeAfter = tuple[dict[str, Any], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class InventoryResult:
    """What became of a report. `flagged` says why it changed nothing, and is empty for one that was taken."""

    generation: int
    changed: bool
    flagged: str = ""


@dataclass(frozen=True, slots=True)
class InventoryDiff:
    """What a report would change of a node.

    `flagged` says why it would not be taken, empty when it would be; `topology` what would open a new
    generation, in words; `has_other_changes` whether anything else would change.
    """

    flagged: str = ""
    topology: tuple[str, ...] = ()
    has_other_changes: bool = False


def preview_inventory(node: Node, report: dict[str, Any]) -> InventoryDiff:
    """Return what `apply_inventory` would do with the report now, and change nothing.

    The answer is certain only under the node's lock.

    Raises Invalid (VALIDATION_ERROR) as `apply_inventory` does.
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
    """Take `report` (an Inventory's validated data) as the node's hardware from now on.

    The topology generation grows by one when the set of units, or a unit's class, GPU model or GPU count
    changed. Health, what is for sale and the host's figures change without one. The same report again changes
    nothing. A report that is older than one already taken, partial, or empty on a node that ever had a unit
    is kept and flagged, and changes nothing: absence from it is no evidence. One without a `sequence` is an
    operator's, outside the order of the agent's reports.

    Raises Invalid NODE_DECOMMISSIONED when the node was removed or its announced end has come, and
    VALIDATION_ERROR for a report that contradicts what is known of the node; NotFound when there is none.
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
        was = _host_facts(node)
        _apply_host(node, report)
        news = {name: value for name, value in _host_facts(node).items() if value != was[name]}
        host = ({name: was[name] for name in news}, news)
        node.inventory_digest = content
        if causes:
            node.topology_gen += 1
        node.save()
        if causes:
            _open_generation(node, report, causes, host, at, actor)
            detect_two_hosts(node, at, actor=actor)
        elif news:
            _record_host(node, host, at, actor)
        return InventoryResult(node.topology_gen, changed=True)


def _units_by_address(node: Node) -> dict[str, GpuUnit]:
    """Every unit that the node has or had, by address."""
    rows = GpuUnit.objects.filter(node=node).select_related("gpu_model").prefetch_related("gpus")
    return {unit.address: unit for unit in rows}


def _require_consistent(node: Node, report: dict[str, Any]) -> None:
    """Raise Invalid for a report that leaves out what it contradicts, where the node's row has it."""
    if "runtime" not in report:
        for number, unit in enumerate(report["units"]):
            for why in find_class_contradictions(unit, node.runtime):
                raise Invalid(f"units[{number}].allocClass {why}.")
    host = report.get("host") or {}
    free = host.get("diskFreeGb")
    if "diskTotalGb" not in host and (why := find_disk_contradiction(node.disk_total_gb, free)):
        raise Invalid(f"host.diskFreeGb {why}. Report both figures together.")


def _get_or_create_report_order(node: Node) -> Any:
    """The order of the node's inventory reports, with its current epoch; call it under the node's lock."""
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
    """Why a report is not taken for its place in the order; empty for an operator's, which has none."""
    if "sequence" not in report:
        return ""
    order: Any = with_current_epoch(InventoryState.objects.filter(pk=node.pk)).first()
    return _judge_report(order, node, report, content_digest(report), order.now).flag_reason if order else ""


def _content_flag_reason(node: Node, report: dict[str, Any], *, had_units: bool) -> str:
    """Why a report in its order is not believed; empty when it is. Names the report that stands instead."""
    stands = f"; report {node.inventory_sequence} stands" if node.inventory_sequence else ""
    if not report["complete"]:
        return f"it is partial: the agent could not read all of its hardware{stands}"
    # A host that never had a GPU is one for VMs without.
    if not report["units"] and had_units:
        return f"it lists no unit at all{stands}"
    return ""


def _record_flagged_report(
    order: ReportOrder, node: Node, report: dict[str, Any], flag_reason: str, at: datetime, actor: Actor
) -> None:
    """Keep the report that was not taken, unless one with the same trouble was kept since the last
    that was taken: agents repeat themselves every minute.
    """
    flagged = InventoryReport.objects.filter(node=node, flagged=flag_reason)
    if order.last_report_at is not None:
        flagged = flagged.filter(received_at__gt=order.last_report_at)
    if flagged.exists():
        return
    # One whose trouble comes and goes, or changes its numbers, adds a row a minute at most.
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
    """Bring the unit and GPU rows to what was reported, and note in the audit log what can be sold of them
    that could not, or the other way round; returns what of it is topology, in words.
    """
    causes = topology_changes(units, reported)
    models = _get_or_create_models({unit["gpus"][0]["model"] for unit in reported}, at, actor)
    changed = []
    replaced_cards: list[tuple[GpuUnit, str, str, str]] = []
    _release_iommu_groups(units, reported, at)
    for data in reported:
        model = models[data["gpus"][0]["model"]]
        unit = units.get(data["address"])
        known = list(unit.gpus.all()) if unit is not None else []
        before = _sale_facts(unit, known) if unit is not None and unit.gone_at is None else None
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
            for gpu in known
            for gpu_report in data["gpus"]
            if gpu.address == gpu_report["address"] and _is_replaced_card(gpu, gpu_report)
        ]
        after = _sale_facts(unit, _apply_gpus(unit, data["gpus"], known, at))
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
        # Once a minute at most for two cards that take turns, as where two hosts share a credential.
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
    """What decides, beside the topology, whether the unit is for sale."""
    failed = {gpu.address: gpu.failure for gpu in gpus if gpu.failed_at is not None}
    return {
        "sellable": unit.sellable,
        **({"notSellableReason": unit.not_sellable_reason} if unit.not_sellable_reason else {}),
        **({"failedGpus": dict(sorted(failed.items()))} if failed else {}),
    }


def _update_row(row: GpuUnit | Gpu, **facts: Any) -> None:
    """Write of the facts what is news; hosts repeat most of what they say."""
    news = [name for name, value in facts.items() if getattr(row, name) != value]
    for name in news:
        setattr(row, name, facts[name])
    if row._state.adding:
        row.save(force_insert=True)
    elif news:
        row.save(update_fields=news)


def topology_changes(units: Mapping[str, GpuUnit], reported: list[dict[str, Any]]) -> list[str]:
    """The changes of topology in a report, in words. `units` has the node's units by address."""
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
    """Write which units are gone, and free the IOMMU groups that pass from one unit to another: at no moment
    may two units of a node be of one group.
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
    """Whether the slot has another card than before. A serial that is not known tells nothing."""
    serial = data.get("serial", "")
    return bool(gpu.serial and serial and gpu.serial != serial)


def _apply_gpus(unit: GpuUnit, reported: list[dict[str, Any]], known: list[Gpu], at: datetime) -> list[Gpu]:
    """Bring the unit's GPU rows, `known`, to what was reported; returns them."""
    before = {gpu.address: gpu for gpu in known}
    gpus = []
    for data in reported:
        gpu = before.pop(data["address"], None) or Gpu(unit=unit, address=data["address"])
        # A failure belongs to the card and not to its slot.
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
        # An earlier reading, where the report has the disk's new size alone.
        node.disk_free_gb = min(node.disk_free_gb, node.disk_total_gb)
    node.tdx_enabled = host.get("tdx", node.tdx_enabled)


def _host_facts(node: Node) -> dict[str, Any]:
    """What of the host decides on what can run there. Its free disk is a reading, and moves all the time."""
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
    """The catalogue's models by slug; one that nobody knows gets a hidden placeholder."""
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
    """Keep what the units now are, and note in the audit log what changed, of the host too."""
    kept = InventoryReport.objects.create(
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
        report=kept,
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
        after={"generation": node.topology_gen, "report": str(kept.pk), "changes": causes, **host_after},
        at=at,
    )
