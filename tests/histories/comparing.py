"""Whether the platform is what the model says: what it wrote down, and what it shows to whom."""

import datetime as dt
from typing import Any

from reservations.services.invariants import violations
from tests.histories.facts import Contract, require
from tests.histories.people import Model
from tests.histories.real import ORGS, Real, address, numbers


def compare(model: Model, real: Real) -> None:
    """Raise Disagreement unless what is written down is what the model has."""
    _runs(model, real)
    _workloads(model, real)
    for node in model.nodes:
        _units(model, real, node)


def compare_views(model: Model, real: Real, turn: int) -> None:
    """The invariants, and what one organization and one node show, in turn."""
    found = violations()
    require(not found, f"invariants: {found}")
    org = ORGS[turn % len(ORGS)]
    _availability(model, real, org)
    _listed(model, real, org)
    nodes = list(model.nodes)
    node = nodes[turn % len(nodes)]
    _contracts(model, real, node)
    _relation(model, real, org, node)
    if model.workloads:
        _burn(model, real, turn)


def _same(what: str, found: Any, wanted: Any) -> None:
    require(found == wanted, f"{what} is {found}, and should be {wanted}")


def _runs(model: Model, real: Real) -> None:
    found = real.runs()
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


def _workloads(model: Model, real: Real) -> None:
    found = real.workloads()
    _same("the workloads", found.keys(), model.workloads.keys())
    for pk, workload in model.workloads.items():
        wanted = {
            "status": workload.status,
            "reason": workload.reason,
            "node": workload.node,
            "public": workload.public,
            "disk": workload.disk,
            "keys": workload.keys,
        }
        _same(f"{workload.kind} {pk}", found[pk], wanted)


def _units(model: Model, real: Real, node_id: str) -> None:
    """The unit list as operators see it."""
    node = model.nodes[node_id]
    listed = {row["id"]: row for row in real.read(f"/v1/nodes/{node_id}/reservations/units")}
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
    _same(f"what {org} may have", found, model.availability(org))


def _listed(model: Model, real: Real, org: str) -> None:
    """The lists of VMs and of live pods, as the organization's own key reads them."""
    shown = {}
    for path in (real.org_path(org, "vms?limit=100"), "/v1/pods?limit=100"):
        for row in real.read(path, org)["items"]:
            shown[row["id"]] = (row["status"], row.get("statusReason", ""), row["public"])
    wanted = {
        workload.id: (workload.status, workload.reason, workload.public)
        for workload in model.workloads.values()
        if workload.org == org and (workload.kind == "vm" or workload.status != "terminated")
    }
    _same(f"the workloads of {org}", shown, wanted)


def _burn(model: Model, real: Real, turn: int) -> None:
    """What one workload costs: those that run in turn, or the latest."""
    running = [workload for workload in model.workloads.values() if workload.rate is not None]
    workload = running[turn % len(running)] if running else list(model.workloads.values())[-1]
    row = real.read(f"/v1/vms/{workload.id}/burn", workload.org)
    wanted = model.burn(workload)
    _same(f"what {workload.id} costs", {name: row[name] for name in wanted}, wanted)
