"""Whether the platform is what the model says: what it wrote down, and what it shows to whom."""

import datetime as dt
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from reservations.models import Announcement
from reservations.services.invariants import violations
from tests.histories.facts import DEFAULT_TEMPLATE, VM, Contract, Workload, require
from tests.histories.people import Model
from tests.histories.real import ORGS, Real, Runs, address, numbers


@dataclass(frozen=True)
class Written:
    """What the platform wrote down, and the unit lists of some nodes as operators see them."""

    runs: Runs
    workloads: dict[str, dict[str, Any]]
    leases: dict[str, str]
    units: dict[str, list[dict[str, Any]]]


def look(real: Real, nodes: Iterable[str], runs: Runs | None = None) -> Written:
    """What there is now; `runs` when they were read already."""
    units = {node: real.read(f"/v1/nodes/{node}/reservations/units") for node in nodes}
    return Written(real.runs() if runs is None else runs, real.workloads(), real.leases(), units)


def compare(model: Model, written: Written) -> None:
    """Raise Disagreement unless what is written down is what the model has."""
    _runs(model, written.runs)
    _workloads(model, written.workloads)
    _same("who has an address", written.leases, model.leases)
    for node, listed in written.units.items():
        _units(model, node, listed)


def compare_views(model: Model, real: Real, turn: int) -> None:
    """What one organization or one node shows, one view in turn."""
    views: list[Callable[[], None]] = []
    for org in ORGS:
        views.append(partial(_availability, model, real, org))
        views.append(partial(_listed, model, real, org))
        views.append(partial(_pod_capacity, model, real, org))
        node = list(model.nodes)[len(views) // 2 % len(model.nodes)]
        views.append(partial(_contracts, model, real, node))
        views.append(partial(_relation, model, real, org, node))
        views.append(partial(_burn, model, real, turn))
    # One step leads through all of them, whatever their number.
    views[turn * 7 % len(views)]()


def compare_all(model: Model, real: Real) -> None:
    """What is written down, and everything that it shows."""
    compare(model, look(real, model.nodes))
    for org in {workload.org for workload in model.workloads.values()}:
        _listed(model, real, org)
    # One that is in every audience, and two that may be on InfiniBand or not.
    for org in ("platform", "tenant", "buyer"):
        _availability(model, real, org)
        _pod_capacity(model, real, org)
    for node in model.nodes:
        _contracts(model, real, node)
    for workload in model.workloads.values():
        _costs(model, real, workload)


def compare_announcements(model: Model) -> None:
    """After a sweep everybody was told of what their reservations have come to."""
    told: dict[str, set[str]] = {}
    for contract, event in Announcement.objects.values_list("reservation_id", "event"):
        told.setdefault(str(contract), set()).add(event)
    for contract in model.contracts.values():
        heard, status = told.get(contract.id, set()), model.status(contract)
        for name, event in (("expired", "expired"), ("needs-review", "needs_review")):
            if status == name:
                require(f"reservation.{event}" in heard, f"{contract.id} is {status}, and told is {heard}")
        if status == "pending":
            require("reservation.activated" not in heard, f"{contract.id} is pending, and told is {heard}")


def compare_invariants() -> None:
    """Nothing is wrong in the database."""
    found = violations()
    require(not found, f"invariants: {found}")


def _same(what: str, found: Any, wanted: Any) -> None:
    require(found == wanted, f"{what} is {found}, and should be {wanted}")


def _runs(model: Model, found: Runs) -> None:
    wanted = {
        run.id: {
            "workload": run.workload,
            "node": run.node,
            "number": run.number,
            "units": run.units,
            "wanted": run.wanted,
            "observed": run.observed,
            "open": run.open,
            "reboots": run.reboots,
        }
        for run in model.runs.values()
    }
    _same("the runs", found.keys(), wanted.keys())
    for pk, run in wanted.items():
        _same(f"run {run['number']} of {run['workload']}", found[pk], run)


def _workloads(model: Model, found: dict[str, dict[str, Any]]) -> None:
    _same("the workloads", found.keys(), model.workloads.keys())
    for pk, workload in model.workloads.items():
        wanted = {
            "status": workload.status,
            "reason": _reason(workload, found[pk]["reason"]),
            "node": workload.node,
            "public": workload.public,
            "given": workload.given,
            "requested": workload.requested,
            "template": workload.asked.template or (DEFAULT_TEMPLATE if workload.kind == VM else None),
            "keys": workload.keys,
        }
        _same(f"{workload.kind} {pk}", found[pk], wanted)


def _reason(workload: Workload, shown: str) -> str:
    """The reason to show; of a pod that is tried again, when that is is the platform's to say."""
    return shown if workload.lost and shown.startswith("its job was lost") else workload.reason


def _units(model: Model, node_id: str, rows: list[dict[str, Any]]) -> None:
    """The unit list as operators see it."""
    node = model.nodes[node_id]
    listed = {row["id"]: row for row in rows}
    wanted = {}
    for number, unit in node.units.items():
        contract = model.held_by(node_id, number)
        if not unit.present and contract is None:
            continue
        claimed = model.claim_on(node_id, number)
        on = [run.workload for run in model.open_runs(node_id, [number])]
        users = {claimed.id} if claimed is not None else set(on)
        wanted[address(number)] = {
            "reservable": unit.usable,
            "reservationId": contract.id if contract is not None else None,
            "released": number in contract.released if contract is not None else None,
            "users": {f"vm:{user}" for user in users},
        }
    _same(f"the units of {node_id}", listed.keys(), wanted.keys())
    for pk, row in wanted.items():
        users = row.pop("users")
        shown = listed[pk]
        _same(f"unit {pk} of {node_id}", {name: shown.get(name) for name in row}, row)
        _same(f"the state of {pk}", shown["state"], "claimed" if users else "free")
        by = shown.get("claimedBy")
        require(by in users if users else by is None, f"{pk} is claimed by {by}, and should by {users}")


def _contracts(model: Model, real: Real, node_id: str) -> None:
    listed = {row["id"]: row for row in real.read(f"/v1/nodes/{node_id}/reservations")}
    mine = {contract.id: contract for contract in model.of_node(node_id)}
    _same(f"the reservations of {node_id}", listed.keys(), mine.keys())
    for pk, contract in mine.items():
        _same(f"reservation {pk}", _shown(real, listed[pk]), _wanted(model, contract))


def _shown(real: Real, row: dict[str, Any]) -> dict[str, Any]:
    ends = row.get("endsAt")
    return {
        "status": row["status"],
        "units": numbers(row["reservedUnitIds"]),
        "released": numbers(row["releasedUnitIds"]),
        "audience": {real.names[org] for org in row["allowedOrgIds"]},
        "managers": {real.names[org] for org in row["managingOrgIds"]},
        "start": dt.datetime.fromisoformat(row["startsAt"]),
        "end": None if ends is None else dt.datetime.fromisoformat(ends),
        "generation": row["topologyGen"],
    }


def _wanted(model: Model, contract: Contract) -> dict[str, Any]:
    return {
        "status": model.status(contract),
        "units": contract.units,
        "released": contract.released,
        "audience": contract.audience,
        "managers": contract.managers,
        "start": contract.start,
        "end": contract.end,
        "generation": contract.generation,
    }


def _relation(model: Model, real: Real, org: str, node_id: str) -> None:
    """Whether the organization sees the node's units."""
    related = org in ("platform", model.nodes[node_id].owner) or any(
        org in contract.managers and not model.ended(contract) for contract in model.of_node(node_id)
    )
    status, _ = real.ask("GET", f"/v1/nodes/{node_id}/reservations/units", org)
    _same(f"what {org} is told of the units of {node_id}", status, 200 if related else 404)


def _availability(model: Model, real: Real, org: str) -> None:
    found = {}
    for row in real.read("/v1/gpu-availability", org):
        vm = row["vm"]
        told = (vm["freeGpus"], vm["reservedFreeGpus"], vm["spotFreeGpus"], vm["totalGpus"])
        if any(told):
            found[real.slugs[row["gpuModelId"]]] = told
    # What VMs without GPUs took of others' shares is told of in part.
    if not model.beside():
        _same(f"what {org} may have", found, model.availability(org))


def _pod_capacity(model: Model, real: Real, org: str) -> None:
    found = {
        real.slugs[row["gpuModelId"]]: (row["freeUnits"], row["totalUnits"], row["maxGpuCount"])
        for row in real.read("/v1/pods/capacity", org)["items"]
    }
    _same(f"what pods {org} may have", found, model.pod_capacity(org))


def _listed(model: Model, real: Real, org: str) -> None:
    """The lists of VMs and of live pods, as the organization's own key reads them."""
    shown = {}
    for path in (real.org_path(org, "vms?limit=100"), "/v1/pods?limit=100"):
        for row in real.read(path, org)["items"]:
            shown[row["id"]] = (row["status"], row.get("statusReason", ""), row["public"])
    wanted = {
        workload.id: (
            workload.status,
            _reason(workload, shown.get(workload.id, ("", ""))[1]),
            workload.public,
        )
        for workload in model.workloads.values()
        if workload.org == org and (workload.kind == "vm" or workload.status != "terminated")
    }
    _same(f"the workloads of {org}", shown, wanted)


def _burn(model: Model, real: Real, turn: int) -> None:
    """What one workload costs: those that run in turn, or the latest."""
    if not model.workloads:
        return
    running = [workload for workload in model.workloads.values() if model.bill_of(workload)]
    workload = running[turn % len(running)] if running else list(model.workloads.values())[-1]
    _costs(model, real, workload)


def _costs(model: Model, real: Real, workload: Workload) -> None:
    row = real.read(f"/v1/vms/{workload.id}/burn", workload.org)
    wanted = model.burn(workload)
    _same(f"what {workload.id} costs", {name: row.get(name) for name in wanted}, wanted)
