"""Placing one VM on one node, decided under its lock."""

from dataclasses import dataclass, field, replace
from uuid import UUID

from compute import states
from compute.capacity import Shape, Share, shape, share
from compute.models import Run, SshKey, Workload, WorkloadSshKey
from compute.placement import FREE, SPOT, Choice, Option, Standing, Use, choose, standing
from compute.services.claims import OccupancyFacts, claim, claims_on, occupancies_on
from compute.services.eviction import evict
from compute.services.host import left_on
from compute.services.prices import rate
from compute.services.transitions import facts
from nodes.models import GpuUnit, HoldAudience, Node
from nodes.querysets import Moment
from nodes.services.locking import LockedNode
from nodes.services.survey import UnitFacts, survey
from openrelay.audit.services.record import record
from openrelay.errors import Invalid
from openrelay.identity.caller import Caller
from openrelay.ids import new_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A VM to place: what its request says, resolved. Sizes are MiB and GB; None is what the node gives.

    `details` has the fields of the workload that placement only hands on.
    """

    name: str
    gpu_count: int
    tier: str
    keys: tuple[SshKey, ...]
    model_id: UUID | None = None
    guest_mem_mb: int | None = None
    disk_gb: int | None = None
    details: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a node had no room. `largest` is the most GPUs of one model that would have fitted."""

    sentence: str
    largest: int = 0
    host: bool = False  # GPUs there were, but not the memory or disk to go with them
    shape: bool = False  # it asks for more than the node's share, whoever is there


def names(caller: Caller, node: Node, at: Moment) -> bool:
    """Whether the caller may name the node: owner, operator, or audience of a hold in term there."""
    if caller.is_operator or node.organization_id == caller.organization_id:
        return True
    return HoldAudience.objects.filter(
        organization_id=caller.organization_id, hold__node=node, hold__term__contains=at
    ).exists()


def unknown_node() -> Invalid:
    """The same for a node that is not there as for one that is not there for this caller."""
    return Invalid(
        "nodeId does not name a node that you can place on. Omit it to use the public pool.",
        code="UNKNOWN_NODE",
    )


def place(held: LockedNode, caller: Caller, wanted: Wanted, *, named: bool) -> Workload | Refusal:
    """Give the VM units of the locked node, preempting for them where that is the caller's right, or say why
    not.

    Raises Invalid UNKNOWN_NODE or NODE_DECOMMISSIONED for a named node that the caller has no rights on any
    more, or that was removed.
    """
    node, at = held.node, held.at
    if named and not names(caller, node, at):
        raise unknown_node()
    if node.removed_at is not None:
        if not named:
            return Refusal("the node was removed")
        raise Invalid("The node was removed. Name another, or none.", code="NODE_DECOMMISSIONED")
    if not node.takes_new_work:
        return Refusal("the node takes no new work now")
    if not Node.objects.taking_new_work(at).filter(pk=node.pk).exists():
        return Refusal("the node is offline")

    surveyed = survey(node, at)
    occupied = occupancies_on(node)
    options = options_for(surveyed, _uses(node, occupied), caller.organization_id, wanted, named=named)
    choice = choose(options, wanted.gpu_count)
    if choice is None:
        return Refusal("the node has no such number of free GPUs that you may have", largest(options))
    # Runs that may still be on the chosen units: the VM starts only once they are gone.
    chosen = {option.unit_id for option in choice.options}
    there_first = {row.run_id for row in occupied if row.unit_id in chosen}
    given = _shape(node, surveyed, choice, wanted, there_first)
    if isinstance(given, Refusal):
        return given

    victims = list(Workload.objects.filter(pk__in=choice.victims))
    # The log of those who lose it does not tell where the winner called from; the winner's own does.
    evict(held, victims, reason=states.SPOT_PREEMPTED, actor=replace(caller.actor, source_ip=""))
    return _write(held, caller, wanted, choice, given, waits=bool(there_first), named=named)


def _uses(node: Node, occupied: list[OccupancyFacts]) -> dict[UUID, Use]:
    """What is on each used unit of the node."""
    uses = {row.unit_id: Use(occupied=True) for row in occupied}
    for row in claims_on(node):
        uses[row.unit_id] = Use(row.unit_id in uses, row.workload_id, row.tier, row.created_at)
    return uses


def options_for(
    surveyed: list[UnitFacts], uses: dict[UUID, Use], organization_id: UUID, wanted: Wanted, *, named: bool
) -> list[Option]:
    """The units of a node that the request may have, by the table in `placement.standing`."""
    options = []
    for facts_ in surveyed:
        unit = facts_.unit
        if unit.alloc_class != GpuUnit.VFIO_GROUP:
            continue
        if wanted.model_id not in (None, unit.gpu_model_id):
            continue
        use = uses.get(unit.pk, FREE)
        stands = standing(facts_, use, organization_id=organization_id, tier=wanted.tier, named=named)
        if stands is not None:
            options.append(
                Option(
                    unit.pk,
                    unit.address,
                    unit.gpu_model_id,
                    unit.gpu_count,
                    stands,
                    use.workload_id if use.tier == SPOT else None,
                    use.since,
                    facts_.held.hold_id if facts_.held is not None and stands is not Standing.OPEN else None,
                )
            )
    return options


def largest(options: list[Option]) -> int:
    """The most GPUs of one model that the options add up to."""
    totals: dict[UUID, int] = {}
    for option in options:
        totals[option.model_id] = totals.get(option.model_id, 0) + option.gpus
    return max(totals.values(), default=0)


def share_of(node: Node, surveyed: list[UnitFacts]) -> Share:
    """What one GPU of the node brings with it of the host."""
    gpus = sum(
        row.unit.gpu_count
        for row in surveyed
        if row.unit.gone_at is None and row.unit.sellable and row.unit.alloc_class == GpuUnit.VFIO_GROUP
    )
    return share(gpus=gpus, ram_mb=node.ram_mb, cpu_cores=node.cpu_cores, disk_total_gb=node.disk_total_gb)


def _shape(
    node: Node, surveyed: list[UnitFacts], choice: Choice, wanted: Wanted, there_first: set[UUID]
) -> Shape | Refusal:
    """What the VM is given of the host, or why it cannot be."""
    model = next(row.unit.gpu_model for row in surveyed if row.unit.gpu_model_id == choice.model_id)
    given = shape(
        share_of(node, surveyed),
        gpu_count=wanted.gpu_count,
        vram_gb=model.vram_gb,
        guest_mem_mb=wanted.guest_mem_mb,
        disk_gb=wanted.disk_gb,
    )
    if given is None:
        return Refusal("it asks for more memory or disk than these GPUs come with on the node", shape=True)
    left = left_on(node, but=there_first)
    if not left.holds(given):
        return Refusal("the node has the GPUs, but not the memory or disk to go with them", host=True)
    return given


def _write(
    held: LockedNode,
    caller: Caller,
    wanted: Wanted,
    choice: Choice,
    given: Shape,
    *,
    waits: bool,
    named: bool,
) -> Workload:
    node, at = held.node, held.at
    cents = rate(choice.model_id, wanted.tier)
    workload = Workload(
        id=new_id(),
        organization_id=caller.organization_id,
        kind=Workload.Kind.VM,
        name=wanted.name,
        tier=wanted.tier,
        status=states.PENDING if waits else states.DEPLOYING,
        node=node,
        gpu_model_id=choice.model_id,
        gpu_count=wanted.gpu_count,
        guest_vcpu=given.vcpu,
        guest_mem_mb=given.guest_mem_mb,
        requested_guest_mem_mb=wanted.guest_mem_mb,
        disk_size_gb=given.disk_gb,
        price_per_hour_cents=None if cents is None else cents * wanted.gpu_count,
        node_named=named,
        created_by=caller.principal,
        created_at=at,
        updated_at=at,
        **wanted.details,
    )
    workload.save(force_insert=True)
    WorkloadSshKey.objects.bulk_create(
        [WorkloadSshKey(workload=workload, ssh_key=key) for key in wanted.keys]
    )
    run = Run(workload=workload, node=node, number=1, created_at=at)
    run.save(force_insert=True)
    claim(workload, run, [(option.unit_id, option.hold_id) for option in choice.options], at)
    record(
        caller.actor,
        "vm.created",
        target_type="vm",
        target_id=workload.pk,
        org_id=workload.organization_id,
        after={
            **facts(workload),
            "name": workload.name,
            "tier": workload.tier,
            "nodeId": str(node.pk),
            "unitIds": [option.address for option in choice.options],
            "preempted": [str(victim) for victim in choice.victims],
        },
        at=at,
    )
    return workload
