"""Placing one workload on one node, decided under its lock."""

from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, Q

from compute.domain import states
from compute.models import Run, Workload
from compute.services.billing.accounts import require_balance
from compute.services.billing.prices import is_free
from compute.services.lifecycle.evict import evict
from compute.services.lifecycle.transitions import facts, move
from compute.services.placement.decide import Placement, PlacementRequest, Rejection, decide
from compute.services.placement.pod_admission import connect, refuse
from compute.services.placement.workload_rows import insert, insert_run
from nodes.models import HoldAudience, Node
from nodes.querysets import Moment
from nodes.services.locking import LockedNode
from openrelay.audit.services.record import AuditEntry
from openrelay.core.errors import Invalid, Unavailable
from openrelay.core.ids import new_id
from openrelay.identity.caller import Caller


def may_target_node(caller: Caller, at: Moment) -> Q:
    """The nodes that the caller may name: as owner, operator, or audience of a hold in term there."""
    if caller.is_operator:
        return Q()
    kept = HoldAudience.objects.filter(
        organization_id=caller.organization_id, hold__node=OuterRef("pk"), hold__term__contains=at
    )
    return Q(organization_id=caller.organization_id) | Q(Exists(kept))


def _lives_there(caller: Caller, node: Node) -> bool:
    return caller.is_operator or node.organization_id == caller.organization_id


def _pinned(caller: Caller, node: Node, at: Moment) -> list[int]:
    """The topology generations of the holds in term there that are kept for the caller."""
    kept = HoldAudience.objects.filter(
        organization_id=caller.organization_id, hold__node=node, hold__term__contains=at
    )
    return list(kept.values_list("hold__topology_gen", flat=True))


def unknown_node() -> Invalid:
    """The same for a node that is not there as for one that is not there for this caller."""
    return Invalid(
        "nodeId does not name a node that you can place on. Omit it to use the public pool.",
        code="UNKNOWN_NODE",
    )


def place(held: LockedNode, caller: Caller, wanted: PlacementRequest, *, named: bool) -> Workload | Rejection:
    """Give the workload units of the locked node, preempting for them where that is the caller's right; or
    say why not.

    Raises Invalid UNKNOWN_NODE or NODE_DECOMMISSIONED for a named node that the caller has no rights on any
    more, or that was removed; Conflict INSUFFICIENT_BALANCE; what `start_again` raises for one that was
    placed before.
    """
    refusal = reject_target(held, caller) if named and wanted.again is None else None
    if refusal is not None:
        return refusal
    room = decide_affordable(held, caller, wanted, named=named)
    if isinstance(room, Rejection):
        return room
    if wanted.again is not None:
        return start_again(held, caller, wanted.again, room)
    pk = new_id()
    if wanted.pod and (refusal := refuse(held, caller.organization_id, room.choice.model_id, pk)) is not None:
        return refusal
    _preempt(held, caller, room)
    return _write(held, caller, wanted, room, pk, named=named)


def reject_target(held: LockedNode, caller: Caller) -> Rejection | None:
    """Why nothing is placed now on the locked node that the caller names; None when it may be.

    Raises Invalid UNKNOWN_NODE where the caller has no rights, NODE_DECOMMISSIONED when the node was removed.
    """
    node = held.node
    pinned = [] if _lives_there(caller, node) else _pinned(caller, node, held.at)
    if not pinned and not _lives_there(caller, node):
        raise unknown_node()
    if node.removed_at is not None:
        raise Invalid("The node was removed. Name another, or none.", code="NODE_DECOMMISSIONED")
    if pinned and node.topology_gen not in pinned:
        return Rejection("the reservation that lets you name it needs review")
    return None


def decide_affordable(
    held: LockedNode, caller: Caller, wanted: PlacementRequest, *, named: bool
) -> Placement | Rejection:
    """What `decide` finds for the caller, who has to have something left to pay with.

    A provider on its own node under its own reservation is not billed, so it is not known before what room
    there is. Raises Conflict INSUFFICIENT_BALANCE.
    """
    perhaps_free = named and _has_its_own(held, caller)
    if not perhaps_free:
        require_balance(caller)
    room = decide(held, caller.organization_id, wanted, named=named)
    if perhaps_free and isinstance(room, Placement):
        holds = [hold_id for _, hold_id in room.rights]
        if not is_free(caller.organization_id, held.node.organization_id, holds):
            require_balance(caller)
    return room


def _has_its_own(held: LockedNode, caller: Caller) -> bool:
    """Whether the locked node is the caller's own and has something that is reserved to it. Asked only of
    those whose balance counts.
    """
    return (
        caller.account.balance_cents is not None
        and held.node.organization_id == caller.organization_id
        and bool(_pinned(caller, held.node, held.at))
    )


def start_again(held: LockedNode, caller: Caller, workload: Workload, room: Placement) -> Workload:
    """Give a stopped or failed workload that room on the locked node and have it deploy, by a new run.

    Raises Conflict INVALID_STATE when it is neither any more; Unavailable INSUFFICIENT_IP_CAPACITY for a pod
    that its node's fabric has no address for.
    """
    node, at = held.node, held.at
    if workload.kind == Workload.Kind.POD and not connect(held, workload.organization_id, workload.pk):
        raise Unavailable(
            f"{workload.name} cannot start on its node now: the InfiniBand fabric there has no free address. "
            "Its volume is kept. Try again later.",
            code="INSUFFICIENT_IP_CAPACITY",
        )
    _preempt(held, caller, room)
    # First: whoever started it on another node meanwhile has won, and nothing of this may stay.
    move(
        workload,
        states.DEPLOYING,
        reason=states.USER_RESTARTED,
        actor=caller.actor,
        at=at,
        event="vm.restarted",
        after=_placed(node, room),
    )
    asked = workload.requested_guest_mem_mb
    fresh: dict[str, Any] = {
        "node": node,
        "gpu_model_id": room.choice.model_id,
        "guest_mem_mb": room.given.guest_mem_mb,
        "guest_vcpu": room.given.vcpu,
        "disk_size_gb": room.given.disk_gb,
        "shm_mb": room.given.shm_mb,
        "price_per_hour_cents": room.cents_per_hour,
    }
    if asked is not None and room.given.guest_mem_mb is not None and asked > room.given.guest_mem_mb:
        fresh["requested_guest_mem_mb"] = room.given.guest_mem_mb
    Workload.objects.filter(pk=workload.pk).update(**fresh)
    for name, value in fresh.items():
        setattr(workload, name, value)
    number = (
        Run.objects.filter(workload=workload).order_by("-number").values_list("number", flat=True).first()
    )
    insert_run(workload, (number or 0) + 1, room.rights, at)
    return workload


def _preempt(held: LockedNode, caller: Caller, room: Placement) -> None:
    """End the spot workloads that the room costs."""
    if not room.choice.victims:
        return
    victims = list(Workload.objects.filter(pk__in=room.choice.victims))
    evict(held, victims, reason=states.SPOT_PREEMPTED, actor=caller.actor)


def _write(
    held: LockedNode, caller: Caller, wanted: PlacementRequest, room: Placement, pk: UUID, *, named: bool
) -> Workload:
    node, at, given = held.node, held.at, room.given
    workload = Workload(
        id=pk,
        organization_id=caller.organization_id,
        kind=Workload.Kind.POD if wanted.pod else Workload.Kind.VM,
        name=wanted.name,
        tier=wanted.tier,
        status=states.PENDING if room.there_first else states.DEPLOYING,
        node=node,
        gpu_model=room.model,
        gpu_count=wanted.gpu_count,
        guest_vcpu=given.vcpu,
        guest_mem_mb=given.guest_mem_mb,
        requested_guest_mem_mb=None if wanted.pod else wanted.guest_mem_mb or given.guest_mem_mb,
        shm_mb=given.shm_mb,
        disk_size_gb=given.disk_gb,
        price_per_hour_cents=room.cents_per_hour,
        node_named=named,
        created_by=caller.principal,
        created_at=at,
        updated_at=at,
        **wanted.details,
    )
    entry = created(caller, workload, **_placed(node, room))
    insert(workload, wanted.keys, room.rights, entry, closing=held.closing)
    return workload


def created(caller: Caller, workload: Workload, **placed: Any) -> AuditEntry:
    """The audit event of a workload that is made; `placed` says where it went."""
    return AuditEntry(
        actor=caller.actor,
        event="vm.created",
        target_type="vm",
        target_id=workload.pk,
        org_id=workload.organization_id,
        after={**facts(workload), "name": workload.name, "tier": workload.tier, **placed},
        at=workload.created_at,
    )


def _placed(node: Node, room: Placement) -> dict[str, Any]:
    """What the audit log shows of where it went."""
    return {
        "nodeId": str(node.pk),
        "unitIds": [option.address for option in room.choice.options],
        "preempted": [str(victim) for victim in room.choice.victims],
    }
