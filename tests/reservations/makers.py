"""Workloads on named units, written as placement writes them."""

from collections.abc import Sequence
from uuid import UUID

from django.db import transaction

from compute.domain import states
from compute.models import Claim, Run, Workload
from compute.services.lifecycle.claims import close
from compute.services.lifecycle.transitions import move
from compute.services.placement.workload_rows import insert_run
from nodes.models import GpuUnit, Node
from nodes.services.locking import locked
from openrelay.audit.actor import SYSTEM
from openrelay.identity.models import Organization
from tests import factories

SPOT, ORDINARY = "spot", "community"


def workload(
    node: Node,
    org: Organization,
    units: Sequence[int],
    *,
    tier: str = SPOT,
    status: str = states.RUNNING,
    name: str = "guest",
    by: str | None = None,
) -> Workload:
    """A workload of `org` that claims those units of the node, and whose guest is on them.

    `by` is the reservation whose audience gave it the right; without it the units were open to all.
    """
    with locked(node.pk) as held:
        rows = list(
            GpuUnit.objects.filter(node=node, address__in=[factories.address(unit) for unit in units])
        )
        assert len(rows) == len(units)
        made = Workload.objects.create(
            organization=org,
            name=name,
            tier=tier,
            status=status,
            node=held.node,
            gpu_model_id=rows[0].gpu_model_id,
            gpu_count=sum(row.gpu_count for row in rows),
            disk_size_gb=100,
            created_by="key:test",
            created_at=held.at,
            updated_at=held.at,
        )
        insert_run(made, 1, [(row.pk, UUID(by) if by else None) for row in rows], held.at)
    return made


def terminate(made: Workload, *, reason: str = states.USER_TERMINATED) -> None:
    """End the workload as its user does: the claim goes at once, the guest is still to be confirmed gone."""
    assert made.node_id is not None
    with locked(made.node_id) as held:
        made.refresh_from_db()
        move(made, states.TERMINATED, reason=reason, actor=SYSTEM, at=held.at)
        Claim.objects.filter(workload=made).delete()
        Run.objects.filter(workload=made).update(desired=Run.Desired.GONE, gone_asked_at=held.at)


def confirm(made: Workload) -> None:
    """The node's agent says that the guest is gone."""
    assert made.node_id is not None
    with transaction.atomic(), locked(made.node_id) as held:
        for run in Run.objects.filter(workload=made, closed_at=None):
            close(run, by="agent", at=held.at)


def status(made: Workload) -> tuple[str, str]:
    """The workload's status and its reason now."""
    made.refresh_from_db()
    return made.status, made.status_reason


def claimed(node: Node) -> dict[str, str]:
    """Who claims which unit of the node: address to workload id."""
    rows = Claim.objects.filter(node=node).order_by("unit__address")
    return {address: str(pk) for address, pk in rows.values_list("unit__address", "workload_id")}
