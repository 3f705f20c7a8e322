"""What histories are drawn from: which steps, how often, with what in them, and what they begin with."""

from typing import Any

from hypothesis import strategies as st

from tests.histories.real import MODELS, ORGS

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
    "create_pod": 3,
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
CHANGES = ("none", "gone", "back", "unhealthy", "model", "class", "unsold", "size", "empty", "alone")
SEQUENCES = ("next", "next", "next", "next", "same", "older", "partial")
GRANTS = (("compute.write",), ("compute.read",), ("compute.operate", "apikey.write"), ("role.manage",))
BEYOND = ("reservation.manage",)

which = st.integers(0, 7)
node = st.sampled_from([0, 0, 0, 0, 1, 1, 2])
who = st.integers(0, 23)
some = st.frozensets(st.integers(0, 3), min_size=1, max_size=2)
seldom = st.sampled_from([False] * 7 + [True])
idempotency = st.sampled_from([None] * 6 + ["first", "second"])
AUDIENCES = (("tenant",), ("tenant", "buyer"), ("buyer",), ("manager", "tenant"))
MANAGERS = ((), ("manager",), ("buyer",), ("manager", "tenant"))

# How each step is drawn. The first of each choice is what a plain history has.
STEPS: dict[str, tuple[Any, ...]] = {
    "create": (
        st.sampled_from(["tenant", "buyer", "provider", "manager", "platform"]),
        st.sampled_from(["community", "spot", "spot", "verified"]),
        st.integers(1, 3),
        st.sampled_from([None, None, None, 0, 0, 0, 0, 1, 2, -1]),
        st.sampled_from([None, None, None, None, 0, 1]),
        who,
        idempotency,
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
    "create_cpu": (st.sampled_from(["buyer", "tenant"]), st.sampled_from([None, 0, 1, -1]), which, who),
    "create_pod": (st.sampled_from(["buyer", "tenant"]), st.integers(1, 2), who, idempotency),
    "stop": (which, who),
    "restart": (which, who),
    "reboot": (which, who),
    "terminate": (which, who),
    "resize": (which, st.sampled_from([10, 5, -5]), who),
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
}
# What several do at one moment, where they get in each other's way.
RACES = (
    ("create", "create"),
    ("create", "create", "create"),
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
)
RACE = st.sampled_from(RACES).flatmap(
    lambda names: st.tuples(*(st.tuples(st.just(name), *STEPS[name]) for name in names))
)
STEPS["race"] = (RACE,)
# Drawn without a look at what is there, which may differ from one time to the next.
STEP = st.sampled_from([name for name in STEPS for _ in range(WEIGHTS.get(name, 1))]).flatmap(
    lambda name: st.tuples(st.just(name), *STEPS[name])
)

# What a history may begin with, so that more of them come to where it is interesting.
_CONTRACT = ("reserve", 0, frozenset({0, 1}), ("tenant",), ("manager",), None, None, 0, None)
_RELEASE = ("release", 0, frozenset({0, 1}), 0)
_OWN = ("create", "tenant", "community", 1, 0, None, 0, None)
_SPOT = ("create", "buyer", "spot", 1, None, None, 0, None)
_ORDINARY = ("create", "buyer", "community", 1, None, None, 0, None)
_OWNERS = ("create", "provider", "community", 1, 0, None, 0, None)
_OWNERS_SPOT = ("create", "provider", "spot", 1, 0, None, 0, None)
_OPERATORS = ("create", "platform", "community", 1, 0, None, 0, None)
_OBEY, _STOP, _RESTART = ("obey", 0), ("stop", 0, 0), ("restart", 0, 0)
_FOR_AN_HOUR = ("reserve", 0, frozenset({0, 1}), ("tenant",), ("manager",), None, 1, 0, None)
_REPEATED = ("create", "buyer", "spot", 1, None, None, 0, "first")


def _said(state: str, how: str = "next") -> tuple[Any, ...]:
    """What the first node's agent says of its latest guest."""
    return "say", 0, ((0, state, ""),), how


def _hardware(change: str, how: str = "next") -> tuple[Any, ...]:
    """What becomes of the first node's first unit."""
    return "inventory", 0, 0, change, how


OPENINGS: tuple[tuple[Any, ...], ...] = (
    (),
    (_CONTRACT, _RELEASE, _SPOT, _OBEY),
    (
        _CONTRACT,
        _OWNERS_SPOT,
        _SPOT,
        ("amend_end", 0, 3, 0),
        _RELEASE,
        ("reclaim", 0, frozenset({0}), True, 0),
    ),
    (_OWNERS_SPOT, _OWNERS_SPOT, _CONTRACT, ("reclaim_spot", 0, None, False, 0)),
    (_OWNERS, _OBEY, _STOP, ("set_status", 0, "draining", 0), _OWNERS),
    (("create_pod", "buyer", 1, 0, None), ("obey", 2), ("say", 2, ((0, "gone", ""),), "next")),
    (_CONTRACT, _RELEASE, _OWNERS, ("inventory", 0, 2, "model", "next"), _OWNERS_SPOT),
    (_OWNERS, _OBEY, ("fall_silent", 0), ("wait", 100), ("sweep",)),
    (_CONTRACT, _OWN, _OBEY, _STOP, _OWN),
    (_OWNERS_SPOT, _OWNERS_SPOT, _CONTRACT, _OBEY, _OWN),
    (_OWNERS, _OWNERS, _OWNERS, _CONTRACT, _OWN),
    (_CONTRACT, ("inventory", 0, 2, "model", "next"), _OWN, _SPOT, _OPERATORS, _OPERATORS),
    (_CONTRACT, _RELEASE, ("inventory", 0, 0, "unhealthy", "next"), _OWNERS_SPOT, _OWN),
    (_ORDINARY, _OBEY, ("obey", 1), _STOP, _RESTART, _OWNERS),
    (("create_pod", "buyer", 1, 0, None), ("obey", 2), ("fall_silent", 0), _ORDINARY),
    (("race", (_ORDINARY, _ORDINARY, _SPOT)), ("race", (_OWNERS, _OWNERS_SPOT))),
    (_CONTRACT, _RELEASE, ("race", (_SPOT, ("reclaim", 0, frozenset({0, 1}), False, 0)))),
    (_OWNERS, _OBEY, _OWNERS, _OBEY, _said("failed", "older"), _said("stopped"), _said("running")),
    (_OWNERS, _OWNERS, _OBEY, _said("gone", "partial"), _said("gone"), _OWNERS),
    (_CONTRACT, _hardware("gone", "older"), _hardware("gone"), ("reaffirm", 0, 0), _hardware("back")),
    (_CONTRACT, _hardware("gone", "partial"), _hardware("unsold"), _OWN, _hardware("unsold"), _OWN),
    (_OWNERS_SPOT, _OWNERS_SPOT, _OWNERS, _CONTRACT, ("reclaim", 0, frozenset({0}), False, 0)),
    (
        _FOR_AN_HOUR,
        ("release", 0, frozenset({0}), 1),
        ("wait", 10800),
        ("reclaim", 0, frozenset({0}), False, 1),
    ),
    (
        _OWNERS,
        _OBEY,
        ("set_price", MODELS[0], "community", 7),
        _OWNERS,
        ("fall_silent", 0),
        ("wait", 100),
    ),
    (_REPEATED, _REPEATED, ("fall_silent", 0), ("wait", 100), _OWNERS, ("sweep",)),
    (("make_key", GRANTS[0], 0), ("revoke_key", 0, 0), ("create", "tenant", "spot", 1, None, None, 20, None)),
    (
        ("create", "tenant", "spot", 1, None, None, 0, None),
        ("make_role", 0, GRANTS[2], 0),
        ("give_role", 0),
        ("make_key", BEYOND, 20),
        ("make_key", GRANTS[2], 20),
        ("change_role", 0, GRANTS[1], 0),
        ("stop", 0, 20),
        ("detach", 0, 3, 0),
    ),
    # A failed VM when its node's end has come, and nobody has ended it yet.
    (
        ("create", "buyer", "community", 1, 1, None, 0, None),
        ("say", 1, ((0, "failed", ""),), "next"),
        ("offboard", 1, 600, 0),
        ("wait", 3600),
        _RESTART,
        ("sweep",),
        _RESTART,
    ),
)
OPENING = st.sampled_from(OPENINGS)
