"""Claims and occupancies of units: read, release and close them, and find which runs wait for which."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from compute.domain import states
from compute.models import Claim, Occupancy, Run, Workload
from compute.services.lifecycle.transitions import move_all
from nodes.models import Node
from nodes.services.fabrics import release_addresses
from openrelay.audit.services.record import Actor
from openrelay.core import jobs
from openrelay.core.rows import Question, ask


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """One claimed unit, and the workload that claims it."""

    unit_id: UUID
    address: str
    workload_id: UUID
    organization_id: UUID
    tier: str
    status: str
    created_at: datetime  # of the workload


@dataclass(frozen=True, slots=True)
class OccupancyFacts:
    """One unit that a run may be on. `claimed` says whether that run still has the claim on it."""

    unit_id: UUID
    run_id: UUID
    workload_id: UUID
    claimed: bool


def claims_on(node: Node | UUID) -> list[ClaimFacts]:
    """Read every claim on the node's units, ordered by unit address, in one query."""
    return ask(claims_of(node))


def claims_of(node: Node | UUID) -> Question[list[ClaimFacts]]:
    """The query of `claims_on`, to run together with others."""
    return Question(_CLAIMS, [_id(node)], lambda rows: [ClaimFacts(*row) for row in rows])


def occupancies_on(node: Node | UUID) -> list[OccupancyFacts]:
    """Read every open occupancy of the node's units, the earliest of a unit first, in one query.

    A unit with an open occupancy and no claim is draining.
    """
    return ask(occupancies_of(node))


def occupancies_of(node: Node | UUID) -> Question[list[OccupancyFacts]]:
    """The query of `occupancies_on`, to run together with others."""
    return Question(_OCCUPANCIES, [_id(node)], lambda rows: [OccupancyFacts(*row) for row in rows])


# Written as SQL: the listing of a node's units sends these queries in one message with its own.
_CLAIMS = """
SELECT claim.unit_id, unit.address, vm.id, vm.organization_id, vm.tier, vm.status, vm.created_at
FROM compute_claim claim
JOIN nodes_gpuunit unit ON unit.id = claim.unit_id
JOIN compute_workload vm ON vm.id = claim.workload_id
WHERE claim.node_id = %s ORDER BY unit.address
"""
_OCCUPANCIES = """
SELECT occupancy.unit_id, run.id, run.workload_id, claim.id IS NOT NULL
FROM compute_occupancy occupancy
JOIN compute_run run ON run.id = occupancy.run_id
LEFT JOIN compute_claim claim ON claim.unit_id = occupancy.unit_id AND claim.run_id = run.id
WHERE occupancy.node_id = %s AND occupancy.closed_at IS NULL
ORDER BY occupancy.unit_id, occupancy.id
"""


def _id(node: Node | UUID) -> UUID:
    return node.pk if isinstance(node, Node) else node


def find_awaited_runs(runs: Iterable[Run]) -> dict[UUID, list[UUID]]:
    """Find the earlier runs that each of the runs waits for. Its guest starts only after they have ended.

    A run waits for the earlier runs that may still be on one of its units. It also waits for the open runs of
    its own workload on the same node, which may still use the disk.

    The result omits runs that wait for nothing. One query, or two when one of the workloads ran before.
    """
    all_runs = list(runs)
    ids = {run.pk for run in all_runs}
    if not ids:
        return {}
    open_on_units = (
        Occupancy.objects.open()
        .filter(unit_id__in=Occupancy.objects.open().filter(run_id__in=ids).order_by().values("unit_id"))
        .order_by("unit_id", "id")
        .values_list("unit_id", "run_id")
    )
    earlier: dict[UUID, list[UUID]] = {}
    waits: dict[UUID, list[UUID]] = {}
    for unit_id, run_id in open_on_units:
        before = earlier.setdefault(unit_id, [])
        if run_id in ids and before:
            known = waits.setdefault(run_id, [])
            known += [other for other in before if other not in known]
        before.append(run_id)
    again = {run.workload_id: run for run in all_runs if run.number > 1}
    if again:
        older = Run.objects.open().filter(workload_id__in=again).exclude(pk__in=ids)
        for pk, workload_id, node_id in older.order_by("number").values_list("pk", "workload_id", "node_id"):
            if node_id == again[workload_id].node_id and pk not in waits.get(again[workload_id].pk, ()):
                waits.setdefault(again[workload_id].pk, []).append(pk)
    return waits


def release_claims(workload_ids: Iterable[UUID], at: datetime) -> None:
    """Delete the claims of those workloads and request the teardown of their guests.

    The caller holds the lock of their node. The units stay occupied until the agent reports that the guest is
    gone, or an operator overrides.
    """
    ids = list(workload_ids)
    Claim.objects.filter(workload_id__in=ids).delete()
    runs = list(Run.objects.wanted().filter(workload_id__in=ids).values_list("pk", flat=True))
    Run.objects.filter(pk__in=runs).update(desired=Run.Desired.GONE, gone_asked_at=at)
    for pk in runs:
        jobs.on_commit("compute.tear_down", str(pk))


def close(run: Run, *, by: str, at: datetime, override_reason: str = "") -> None:
    """Close the run and its occupancies. The last open run of a pod returns the pod's fabric address.

    The caller holds the node's lock. `by` is `Occupancy.AGENT`, or the operator who overrides for
    `override_reason`.
    """
    Occupancy.objects.open().filter(run=run).update(
        closed_at=at, closed_by=by, override_reason=override_reason
    )
    Run.objects.filter(pk=run.pk).update(closed_at=at)
    run.closed_at = at
    # An earlier run can close after a later one opened. The later run still uses the address.
    pod = run.workload.kind == Workload.Kind.POD
    if pod and not Run.objects.open().filter(workload=run.workload_id).exists():
        release_addresses([run.workload_id])


def let_waiting_deploy(node: Node, *, actor: Actor, at: datetime) -> None:
    """Move pending workloads that wait for no run to deploying. The caller holds the node's lock."""
    pending = (
        Run.objects.wanted().filter(node=node, workload__status=states.PENDING).select_related("workload")
    )
    runs = list(pending.order_by("created_at", "id"))
    waits = find_awaited_runs(runs)
    ready = [run.workload for run in runs if run.pk not in waits]
    move_all(ready, states.DEPLOYING, reason="", actor=actor, at=at)
