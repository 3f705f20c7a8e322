"""What the model of the platform knows: plain facts, and the answer that a request got.

The model is written from the rules alone and imports nothing of the platform. Times are the database's, units
are numbers within their node, organizations and credentials go by name, everything else by its id.
"""

import datetime as dt
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

OPERATORS = "platform"
SPOT = "spot"
VM, POD = "vm", "pod"
CLASS_OF = {VM: "vfio-group", POD: "device-request"}
RUNTIME_OF = {VM: "qemu", POD: "runc"}
GRACE = dt.timedelta(seconds=90)
UP = ("pending", "deploying", "running", "interrupted")
LIVE = ("starting", "running")
ENDED = ("stopped", "failed", "gone", "never-started")


class Disagreement(AssertionError):
    """The platform did what the model does not allow."""


def require(condition: object, words: str) -> None:
    """Raise Disagreement with `words` unless the condition holds."""
    if not condition:
        raise Disagreement(words)


@dataclass(frozen=True)
class Host:
    """What a host has: memory in MiB, CPUs, and disk in GB, in all and empty. None is what it never told."""

    ram: int | None = None
    cpus: int | None = None
    disk: int | None = None
    empty: int | None = None

    def told(self, later: "Host") -> "Host":
        """Take what a later report tells and keep the rest. Free disk is never more than the disk."""
        disk = self.disk if later.disk is None else later.disk
        empty = self.empty if later.empty is None else later.empty
        return Host(
            ram=self.ram if later.ram is None else later.ram,
            cpus=self.cpus if later.cpus is None else later.cpus,
            disk=disk,
            empty=empty if disk is None or empty is None else min(disk, empty),
        )


UNTOLD = Host()
# What a VM starts from that names no template: the default one of a fresh platform, which suits every GPU.
DEFAULT_TEMPLATE = "ubuntu-24-04"


@dataclass(frozen=True)
class Template:
    """What VMs may start from: the GPU models that it suits alone, if any."""

    models: frozenset[str] | None = None
    needs_gpu: bool = False
    offered: bool = True


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a request asks for. MiB, GB, and GiB of shared memory; None is left to the node."""

    kind: str
    tier: str = "community"
    count: int = 0
    size: str = ""  # of a VM without GPUs
    ssh_key: str = ""
    node: str | None = None
    model: str | None = None
    memory: int | None = None
    disk: int | None = None
    shared: int | None = None
    regions: tuple[str, ...] = ()
    fallback: bool = False
    template: str | None = None


@dataclass(frozen=True)
class Given:
    """What of a host a workload is given: MiB, CPUs, GB; None where nothing is known to give."""

    memory: int | None
    cpus: int | None
    disk: int
    shared: int | None = None  # MiB, of a pod


@dataclass
class Unit:
    """One unit as the node's last report has it; one that left keeps what it was."""

    gpus: int
    model: str
    klass: str
    healthy: bool = True
    sellable: bool = True
    present: bool = True

    @property
    def usable(self) -> bool:
        return self.present and self.sellable and self.healthy and self.klass in CLASS_OF.values()


@dataclass
class Node:
    id: str
    owner: str
    runtime: str
    interruptible: bool
    units: dict[int, Unit]
    seen: dt.datetime
    content: Any  # of the last report that was taken
    generation: int = 1
    sequence: int = 1
    hold: str = ""
    ends: dt.datetime | None = None
    removed: bool = False
    said: int = 0  # the number of the agent's last report on guests
    host: Host = UNTOLD
    level: int = 1  # of its agent
    region: str | None = None
    fabric: bool = False  # whether it is on the InfiniBand fabric


@dataclass
class Contract:
    id: str
    node: str
    units: frozenset[int]
    start: dt.datetime
    end: dt.datetime | None
    generation: int
    classes: dict[int, str]
    audience: frozenset[str]
    managers: frozenset[str]
    released: frozenset[int] = frozenset()
    cancelled: bool = False


@dataclass
class Run:
    id: str
    workload: str
    node: str
    number: int
    units: frozenset[int]
    wanted: bool = True
    observed: str = ""
    message: str = ""
    open: bool = True
    reboots: int = 0


@dataclass
class Workload:
    id: str
    org: str
    kind: str
    tier: str
    count: int
    model: str
    node: str
    created: dt.datetime
    status: str
    reason: str = ""
    claims: dict[int, str | None] = field(default_factory=dict)  # unit to the contract that gave the right
    keys: set[str] = field(default_factory=set)
    public: bool = False
    asked: Wish = field(kw_only=True)
    given: Given = field(kw_only=True)
    requested: int | None = None  # MiB
    interrupted: dt.datetime | None = None
    lost: bool = False  # a pod whose job was: its reason says so, and when it is tried again


@dataclass
class Bill:
    """What a workload costs from when it comes to run until it no longer does."""

    workload: str
    org: str
    cents: int  # an hour, as it was when it began
    free: bool  # whether its organization pays nothing for it
    start: dt.datetime
    end: dt.datetime | None = None


@dataclass
class Credential:
    """Who asks: an organization's key, or a person's session. `permissions` None is everything."""

    org: str
    session: bool = False
    permissions: tuple[str, ...] | None = None
    maker: str | None = None  # the credential of the person who made the key
    role: str | None = None  # of a person: a role of the organization's own
    revoked: bool = False
    member: bool = True  # of a person: whether they are one


@dataclass(frozen=True)
class Placed:
    """What the platform wrote down of one run."""

    run: str
    node: str
    units: frozenset[int]


@dataclass(frozen=True)
class Seen:
    """The answer to a request, and the runs there are, by workload and number."""

    status: int
    body: Any
    runs: Mapping[tuple[str, int], Placed]

    @property
    def refusal(self) -> tuple[int, str]:
        code = self.body.get("code", "") if isinstance(self.body, dict) else ""
        return self.status, code

    def refused(self, faults: Iterable[tuple[int, str]]) -> bool:
        """Whether the request was refused as one of `faults` asks; without any it has to have succeeded."""
        allowed = list(faults)
        if not allowed:
            require(self.status in (200, 204), f"refused, and should not be: {self.status} {self.body}")
            return False
        require(self.refusal in allowed, f"answered {self.status} {self.body}, and should {allowed}")
        return True


class Facts:
    """The world as the model has it."""

    def __init__(self, now: dt.datetime) -> None:
        self.now = now
        self.nodes: dict[str, Node] = {}
        self.contracts: dict[str, Contract] = {}
        self.workloads: dict[str, Workload] = {}
        self.runs: dict[str, Run] = {}  # in the order in which they began
        self.credentials: dict[str, Credential] = {}
        self.roles: dict[str, tuple[str, tuple[str, ...], str]] = {}  # name, permissions, organization
        self.racing = 0  # how many requests are at work at once
        self.repeated: set[str] = set()  # the Idempotency-Keys that more than one of them has
        self.ssh_keys: dict[str, tuple[str, int]] = {}  # organization, and which key it is
        self.prices: dict[tuple[str, str], int] = {}
        self.kept: dict[tuple[str, str], tuple[Any, Any, dt.datetime]] = {}  # by Idempotency-Key
        self.sizes: dict[str, Given] = {}  # of VMs without GPUs
        self.vram: dict[str, int] = {}  # GB, by GPU model
        self.amd: frozenset[str] = frozenset()  # the GPU models that are AMD's
        self.regions: frozenset[str] = frozenset()  # where there is a location
        self.templates: dict[str, Template] = {}
        self.infiniband: set[str] = set()  # the organizations that are on it
        self.pool = 0  # how many addresses the fabric has
        self.leases: dict[str, str] = {}  # of it: pod to node
        self.budgets: dict[str, tuple[int, str]] = {}  # of keys: nano-USD, and a period
        self.applied: set[str] = set()  # the organizations that asked to become providers
        self.suspended: dict[str, dt.datetime] = {}  # the organizations that start nothing, and since when
        self.told_low: set[str] = set()  # the organizations that were told that their balance is low
        self.told_depleted: dict[str, dt.datetime] = {}  # or used up, and when
        self.not_reserved_for: set[str] = set()  # the organizations without reservations
        self.balances: dict[str, int | None] = {}  # in cents
        self.bills: list[Bill] = []

    # Reservations

    def status(self, contract: Contract) -> str:
        if contract.cancelled:
            return "cancelled"
        if contract.end is not None and contract.end <= self.now:
            return "expired"
        if contract.generation != self.nodes[contract.node].generation:
            return "needs-review"
        return "pending" if contract.start > self.now else "active"

    def ended(self, contract: Contract) -> bool:
        return self.status(contract) in ("cancelled", "expired")

    def in_term(self, contract: Contract) -> bool:
        return not self.ended(contract) and contract.start <= self.now

    def held_by(self, node: str, unit: int) -> Contract | None:
        """The contract whose term it is now and that has the unit."""
        found = [c for c in self.of_node(node) if unit in c.units and self.in_term(c)]
        require(len(found) <= 1, f"unit {unit} is in {len(found)} reservations at once")
        return found[0] if found else None

    def of_node(self, node: str) -> list[Contract]:
        return [contract for contract in self.contracts.values() if contract.node == node]

    # Workloads

    def claim_on(self, node: str, unit: int) -> Workload | None:
        return next((w for w in self.workloads.values() if w.node == node and unit in w.claims), None)

    def open_runs(self, node: str, units: Iterable[int] | None = None) -> list[Run]:
        wanted = None if units is None else set(units)
        return [
            run
            for run in self.runs.values()
            if run.open and run.node == node and (wanted is None or run.units & wanted)
        ]

    def runs_of(self, workload: Workload) -> list[Run]:
        return [run for run in self.runs.values() if run.workload == workload.id]

    def guests_of(self, node: str) -> list[tuple[Run, Workload]]:
        """Every guest that may be on the node, with its workload."""
        return [(run, self.workloads[run.workload]) for run in self.open_runs(node)]

    def wanted_run(self, workload: Workload) -> Run | None:
        return next((run for run in self.runs_of(workload) if run.open and run.wanted), None)

    # Nodes

    def online(self, node: Node) -> bool:
        return not node.removed and node.seen > self.now - GRACE

    def takes_work(self, node: Node) -> bool:
        return self.online(node) and not node.hold and node.ends is None

    def gone(self, node: Node) -> bool:
        """Whether it was removed, or its announced end has come."""
        return node.removed or (node.ends is not None and node.ends <= self.now)

    def last_moment(self, node: Node) -> dt.datetime:
        """Until when there is something to pay for on the node, if that ends now."""
        ends = [self.now, node.seen + GRACE]
        return min(ends if node.ends is None else [*ends, node.ends])

    def leaving_words(self, node: Node) -> str:
        if node.ends is None:
            return ""
        return f"node leaving at {node.ends.astimezone(dt.UTC).isoformat().replace('+00:00', 'Z')}"


def subsets(numbers: Iterable[int]) -> Iterable[tuple[int, ...]]:
    """Every set of the numbers."""
    listed = list(numbers)
    return itertools.chain.from_iterable(
        itertools.combinations(listed, size) for size in range(len(listed) + 1)
    )
