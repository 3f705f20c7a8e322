"""What histories are drawn from: which steps, how often, with what in them, and what they begin with."""

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.histories.facts import UNTOLD, Host
from tests.histories.real import MODELS, NOWHERE, ORGS, REGIONS, TEMPLATES

# How often each step is taken, beside the others; what is not here once.
WEIGHTS = {
    "create": 14,
    "obey": 10,
    "reserve": 7,
    "release": 5,
    "reclaim": 4,
    "reclaim_spot": 3,
    "restart": 5,
    "stop": 4,
    "terminate": 3,
    "say": 5,
    "inventory": 4,
    "race": 12,
    "wait": 3,
    "sweep": 2,
    "reaffirm": 2,
    "amend_end": 2,
    "set_status": 2,
    "fall_silent": 1,
    "set_price": 2,
    "create_pod": 4,
    "figures": 2,
    "upgrade": 2,
    "join": 2,
    "set_infiniband": 2,
}
ON_CONTRACTS = {"amend_end", "amend_audience", "amend_managers", "reaffirm", "cancel", "release", "reclaim"}
ON_WORKLOADS = {
    "obey",
    "say",
    "stop",
    "restart",
    "reboot",
    "terminate",
    "resize",
    "set_visibility",
    "attach",
    "detach",
}
STATES = ("starting", "running", "stopped", "failed", "gone", "never-started")
# A host with plenty, one where shares are just enough, one where they are not, one whose disk is as large as
# its GPUs' disks.
PLENTY = Host(ram=1 << 20, cpus=128, disk=8000, empty=8000)
TIGHT = Host(ram=1 << 18, cpus=16, disk=400, empty=400)
POOR = Host(ram=1 << 17, cpus=2, disk=120, empty=60)
FULL = Host(disk=200)
HOSTS = (UNTOLD, PLENTY, TIGHT, POOR, FULL, Host(ram=3 << 17, cpus=6))
CHANGES = ("none", "gone", "back", "unhealthy", "model", "class", "unsold", "size", "empty", "alone")
SEQUENCES = ("next", "next", "next", "next", "same", "older", "partial")
GRANTS = (("compute.write",), ("compute.read",), ("compute.operate", "apikey.write"), ("role.manage",))
BEYOND = ("reservation.manage",)


@dataclass(frozen=True)
class More:
    """What a request asks for beside the usual; MiB, GB and GiB."""

    memory: int | None = 1024
    disk: int | None = 20
    shared: int | None = None
    regions: tuple[str, ...] = ()
    fallback: bool = False
    template: str | None = None
    size: bool = False  # whether it names one where that is no use
    of: int | None = None  # the GPU model, of a pod


USUAL = More()
WHOLE = More(memory=None, disk=None)
_regions = st.lists(st.sampled_from([*REGIONS[:2] * 3, *REGIONS, NOWHERE]), max_size=2, unique=True).map(
    tuple
)
MORE = st.one_of(
    st.just(USUAL),
    st.just(USUAL),
    st.just(WHOLE),
    st.builds(
        More,
        memory=st.sampled_from([None, 1024, 60_000, 110_000, 1 << 29]),
        disk=st.sampled_from([20, None, 60, 110, 300, 9000]),
        shared=st.sampled_from([None, None, 1, 16, 100_000]),
        of=st.sampled_from([None, 0, 2]),
    ),
    st.builds(More, regions=_regions, fallback=st.booleans(), of=st.sampled_from([None, 0, 2])),
    st.builds(
        More,
        template=st.sampled_from([*TEMPLATES, "none"]),
        size=st.sampled_from([False] * 7 + [True]),
    ),
)

which = st.integers(0, 7)
node = st.sampled_from([0, 0, 0, 0, 1, 1, 2, 3])
who = st.integers(0, 23)
some = st.frozensets(st.integers(0, 3), min_size=1, max_size=2)
seldom = st.sampled_from([False] * 7 + [True])
idempotency = st.sampled_from([None] * 6 + ["first", "second"])
AUDIENCES = (("tenant",), ("tenant", "buyer"), ("buyer",), ("manager", "tenant"), ("provider",))
MANAGERS = ((), ("manager",), ("buyer",), ("manager", "tenant"))

# How each step is drawn. The first of each choice is what a plain history has.
STEPS: dict[str, tuple[Any, ...]] = {
    "create": (
        st.sampled_from(["tenant", "buyer", "provider", "manager", "platform"]),
        st.sampled_from(["community", "spot", "spot", "verified"]),
        st.integers(1, 3),
        st.sampled_from([None, None, None, 0, 0, 0, 0, 1, 2, -1]),
        st.sampled_from([None, None, None, None, 0, 1, 2]),
        who,
        idempotency,
        MORE,
    ),
    "reserve": (
        node,
        some,
        st.sampled_from(AUDIENCES),
        st.sampled_from(MANAGERS),
        st.sampled_from([None, None, None, None, None, -30, -120, 3600]),
        st.sampled_from([None, 1, 3, None, 1, 0]),
        who,
        idempotency,
    ),
    "amend_end": (which, st.sampled_from([None, 1, 3, -1]), who),
    "amend_audience": (which, st.sampled_from(AUDIENCES), who),
    "amend_managers": (which, st.sampled_from(MANAGERS), who),
    "reaffirm": (which, who),
    "cancel": (which, who),
    "release": (which, some, who),
    "reclaim": (which, some, seldom, who),
    "reclaim_spot": (node, st.none() | some | st.just(frozenset()), seldom, who),
    "create_cpu": (st.sampled_from(["buyer", "tenant"]), st.sampled_from([None, 0, 1, -1]), which, who, MORE),
    "create_pod": (st.sampled_from(["buyer", "tenant"]), st.integers(1, 2), who, idempotency, MORE),
    "stop": (which, who),
    "restart": (which, who),
    "reboot": (which, who),
    "terminate": (which, who),
    "resize": (which, st.sampled_from([10, 5, -5, 90, 2000]), who),
    "set_visibility": (which, st.booleans(), who),
    "attach": (which, which, who),
    "detach": (which, which, who),
    "add_ssh_key": (st.sampled_from(ORGS), st.integers(0, 2), who),
    "delete_ssh_key": (which, who),
    "obey": (node,),
    "say": (
        node,
        st.lists(st.tuples(which, st.sampled_from(STATES), st.sampled_from(["", "", "boom"])), max_size=3),
        st.sampled_from(SEQUENCES),
    ),
    "inventory": (node, which, st.sampled_from(CHANGES), st.sampled_from(SEQUENCES)),
    "set_status": (node, st.sampled_from([*["online", "maintenance", "draining"] * 3, "removed"]), who),
    "offboard": (st.sampled_from([1, 1, 0]), st.sampled_from([0, 600, 7200, 100_000]), who),
    "notice": (st.sampled_from([1, 1, 0]), st.sampled_from([600, 0, 7200])),
    "make_key": (st.sampled_from([*GRANTS, BEYOND]), who),
    "revoke_key": (which, who),
    "update_key": (
        which,
        st.sampled_from([10**9, None, 0, 5 * 10**9]),
        st.sampled_from([None, "daily", "monthly"]),
        who,
    ),
    "apply": (st.sampled_from(["buyer", "provider"]), who),
    "figures": (node, st.sampled_from(HOSTS), st.sampled_from(SEQUENCES)),
    "make_role": (which, st.sampled_from([*GRANTS, BEYOND]), who),
    "change_role": (which, st.sampled_from([*GRANTS, BEYOND]), who),
    "delete_role": (which, who),
}
# What is no request.
STEPS |= {
    "wait": (st.sampled_from([30, 100, 3600, 100, 3 * 3600, 25 * 3600, 8 * 86400]),),
    "fall_silent": (node,),
    "sweep": (),
    "set_price": (st.sampled_from(MODELS), st.sampled_from(["community", "spot"]), st.integers(1, 300)),
    "give_role": (which,),
    "set_member": (
        st.sampled_from(["helper", "helper", "boss"]),
        st.sampled_from(["owner", "admin", "member", "viewer", "billing", None]),
    ),
    "suspend": (st.sampled_from(["buyer", "tenant", "provider"]), st.sampled_from([True, False, False])),
    "enable_reservations": (
        st.sampled_from(["tenant", "buyer", "provider"]),
        st.sampled_from([False, True, True]),
    ),
    "set_balance": (
        st.sampled_from(["buyer", "provider", "tenant"]),
        st.sampled_from([1, 40, None, None, 10**6, 0]),
    ),
    "upgrade": (st.sampled_from([2, 2, 3, 3, 0]), st.integers(1, 3)),
    "join": (st.sampled_from([2, 2, 3]), st.sampled_from([True, True, False])),
    "set_infiniband": (st.sampled_from(["buyer", "buyer", "tenant"]), st.sampled_from([True, True, False])),
}
# What several do at one moment, where they get in each other's way.
RACES = (
    ("create", "create"),
    ("create", "create", "create"),
    ("create_pod", "create_pod"),
    ("create_cpu", "create"),
    ("resize", "create"),
    ("create", "reclaim"),
    ("create", "reserve"),
    ("create", "release", "reclaim"),
    ("create", "cancel"),
    ("create", "restart"),
    ("create", "set_status"),
    ("create", "inventory"),
    ("create", "obey"),
    ("restart", "restart"),
    ("stop", "restart"),
    ("stop", "obey"),
    ("terminate", "obey", "create"),
    ("amend_end", "cancel"),
    ("reclaim", "reclaim_spot"),
    ("reserve", "reserve"),
    ("create", "suspend"),
    ("create", "set_balance"),
    ("restart", "suspend"),
    ("make_key", "set_member"),
    ("make_role", "set_member"),
)
RACE = st.sampled_from(RACES).flatmap(
    lambda names: st.tuples(*(st.tuples(st.just(name), *STEPS[name]) for name in names))
)
STEPS["race"] = (RACE,)
# Drawn without a look at what is there, which may differ from one time to the next.
STEP = st.sampled_from([name for name in STEPS for _ in range(WEIGHTS.get(name, 1))]).flatmap(
    lambda name: st.tuples(st.just(name), *STEPS[name])
)
