"""What histories begin with, so that more of them come to where it is interesting."""

from typing import Any

from hypothesis import strategies as st

from tests.histories.drawing import BEYOND, FULL, GRANTS, PLENTY, POOR, TIGHT, USUAL, WHOLE, More
from tests.histories.facts import Host
from tests.histories.real import MODELS, NOWHERE, REGIONS

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
_PAIR = ("create", "provider", "community", 2, 0, None, 0, None, WHOLE)
_SPOT_WHOLE = ("create", "buyer", "spot", 1, None, None, 0, None, WHOLE)
_REPEATED = ("create", "buyer", "spot", 1, None, None, 0, "first")

_IN_MAINTENANCE = tuple(("set_status", number, "maintenance", 0) for number in range(2))
_PROVIDERS = ("reserve", 0, frozenset({0, 1}), ("provider",), (), None, None, 0, None)


def _said(state: str, how: str = "next") -> tuple[Any, ...]:
    """What the first node's agent says of its latest guest."""
    return "say", 0, ((0, state, ""),), how


def _hardware(change: str, how: str = "next") -> tuple[Any, ...]:
    """What becomes of the first node's first unit."""
    return "inventory", 0, 0, change, how


def _vm(more: More, where: int | None = None, of: int | None = None, org: str = "buyer") -> tuple[Any, ...]:
    """A VM with one GPU that asks for more than the usual."""
    return "create", org, "community", 1, where, of, 0, None, more


def _own(more: More) -> tuple[Any, ...]:
    """The same of the first node's owner there."""
    return _vm(more, 0, org="provider")


def _pod(count: int = 1, more: More = USUAL) -> tuple[Any, ...]:
    return "create_pod", "buyer", count, 0, None, more


def _cpu(org: str = "buyer", where: int | None = None, of: int = 0, more: More = USUAL) -> tuple[Any, ...]:
    return "create_cpu", org, where, of, 0, more


def _tells(host: Host, of: int = 0, how: str = "next") -> tuple[Any, ...]:
    return "figures", of, host, how


_POD_HOSTS = (("upgrade", 2, 2), ("join", 2, True), ("set_infiniband", "buyer", True))
_STOPPED_POD = (("obey", 2), _STOP, ("obey", 2))
# The run before the last turns up again, and goes.
_LATE, _LATE_GONE = (("say", 2, ((1, state, ""),), "next") for state in ("running", "gone"))
_REMOVED = ("set_status", 0, "removed", 0)
_AMD_HOST = (("upgrade", 3, 3), ("join", 3, True))
_FIRST, _AMD = (More(disk=None, of=of) for of in (0, 2))
_SOUTH_FIRST = More(regions=("south",), fallback=True)
_NORTH, _SOUTH, _EAST = (More(regions=(region,)) for region in REGIONS)

OPENINGS: tuple[tuple[Any, ...], ...] = (
    (),
    # The audience without naming the node: what is reserved to it would do as well as what is open.
    (_CONTRACT, ("create", "tenant", "community", 2, None, None, 0, None)),
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
    (_CONTRACT, _RELEASE, _OWN, _OBEY, ("reclaim", 0, frozenset({0, 1}), False, 0)),
    (_OWNERS, _OBEY, _STOP, ("set_status", 0, "draining", 0), _OWNERS),
    (("create_pod", "buyer", 1, 0, None), ("obey", 2), ("say", 2, ((0, "gone", ""),), "next")),
    (_CONTRACT, _RELEASE, _OWNERS, ("inventory", 0, 2, "model", "next"), _OWNERS_SPOT),
    (_OWNERS, _OBEY, ("fall_silent", 0), ("wait", 100), ("sweep",)),
    (_CONTRACT, _OWN, _OBEY, _STOP, _OWN),
    (_CONTRACT, _OWN, _OWN, _OBEY, _STOP, _OWN),
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
    (_REPEATED, ("create", "buyer", "community", 1, None, None, 0, "first")),
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
    # Where nodes stand, and what VMs start from
    (*(_vm(_NORTH),) * 3, _vm(_SOUTH), _vm(_EAST), _vm(More(regions=("east",), fallback=True))),
    (_vm(_SOUTH_FIRST), _cpu(more=_SOUTH), _cpu(more=_SOUTH_FIRST), _cpu(more=_EAST), _vm(_NORTH, 0)),
    (_vm(_NORTH), _OBEY, _STOP, _OBEY, _REMOVED, _RESTART, _cpu(more=More(regions=(NOWHERE,)))),
    (_vm(More(regions=("north",), fallback=True)), _OBEY, _STOP, _OBEY, _REMOVED, _RESTART),
    tuple(_vm(More(template=name), of=of) for name, of in (("first", 0), ("first", 1), ("first", None)))
    + tuple(_vm(More(template=name)) for name in ("plain", "gpus", "withdrawn", "amd"))
    + (_vm(More(template="amd"), of=2),)
    + (_cpu(more=More(template="gpus")), _cpu(more=More(template="plain"))),
    # What hosts have
    (_tells(PLENTY), _own(WHOLE), _tells(Host(ram=1 << 18)), _own(USUAL), _own(More(disk=110))),
    (_tells(TIGHT), _own(USUAL), _OBEY, _STOP, _OBEY, ("resize", 0, 10, 0), ("resize", 0, 90, 0), _RESTART),
    (_tells(TIGHT), _own(WHOLE), _own(WHOLE), _own(WHOLE), _own(WHOLE), _vm(WHOLE)),
    (_tells(PLENTY), _own(WHOLE), _OBEY, _STOP, _OBEY, _tells(TIGHT), _RESTART, _OBEY, _STOP, _tells(POOR)),
    (_tells(POOR), _own(WHOLE), _cpu("provider", 0), _cpu(of=5), _tells(TIGHT), _own(WHOLE)),
    (_tells(FULL), *(_cpu("provider", 0, 1, WHOLE),) * 2, _STOP, ("resize", 0, 10, 0), ("resize", 0, 200, 0)),
    (_CONTRACT, _RELEASE, _tells(FULL), _PAIR, *(_SPOT_WHOLE,) * 2, _vm(WHOLE, 0, org="tenant"), _OBEY),
    (_tells(TIGHT), _CONTRACT, _cpu("provider", 0, 4), _cpu("tenant", 0, 2), _cpu("provider", 0, 2), _OWN),
    # Pods: agents of a level, addresses, AMD
    (("set_infiniband", "buyer", True), _pod(), ("upgrade", 2, 2), _pod(), ("join", 2, True), _pod()),
    (*_POD_HOSTS, _pod(), *_STOPPED_POD, _pod(), ("upgrade", 2, 1), ("restart", 1, 0)),
    (*_POD_HOSTS, _pod(), _pod(), *_AMD_HOST, _pod(), ("terminate", 0, 0), ("obey", 2), _pod()),
    (
        *_POD_HOSTS,
        _pod(),
        *_STOPPED_POD,
        _RESTART,
        ("obey", 2),
        _LATE,
        _LATE_GONE,
        ("join", 2, False),
        _RESTART,
    ),
    (*_POD_HOSTS, _pod(), *_STOPPED_POD, *_AMD_HOST, _pod(more=_FIRST), _pod(more=_AMD), ("restart", 2, 0)),
    (*_POD_HOSTS, _pod(), ("obey", 2), ("say", 2, ((0, "gone", ""),), "next"), ("obey", 2), _pod(), _pod()),
    (
        *_AMD_HOST,
        _pod(more=_AMD),
        ("obey", 3),
        _STOP,
        ("obey", 3),
        ("upgrade", 3, 2),
        _RESTART,
        _pod(more=_AMD),
    ),
    (
        _tells(TIGHT, of=2),
        _pod(more=More(disk=300)),
        _pod(more=More(shared=16, disk=None)),
        _pod(more=More(shared=80, disk=None, of=0)),
        _pod(more=More(disk=9000, of=0)),
        _pod(2),
    ),
    (
        *_AMD_HOST,
        _pod(more=_AMD),
        ("obey", 3),
        _STOP,
        ("obey", 3),
        ("offboard", 3, 600, 0),
        ("wait", 3600),
        _RESTART,
    ),
    # What keys may spend, and who asks to become a provider
    (
        ("make_key", GRANTS[2], 0),
        ("update_key", 0, None, "daily", 0),
        ("update_key", 0, 10**9, None, 0),
        ("update_key", 0, None, "monthly", 0),
        ("update_key", 0, 5 * 10**9, None, 0),
        ("update_key", 0, 10**9, None, 20),
        ("update_key", 0, 0, None, 0),
        ("apply", "buyer", 0),
        ("apply", "buyer", 0),
    ),
    # Who comes, goes, and has another role
    (
        ("create", "tenant", "spot", 1, None, None, "helper", None),
        ("set_member", "helper", "member"),
        ("create", "tenant", "spot", 1, None, None, "helper", None),
        ("make_key", GRANTS[0], "helper"),
        ("set_member", "helper", "viewer"),
        ("stop", 0, "helper"),
        ("set_member", "helper", None),
        ("stop", 0, "helper"),
        ("set_member", "helper", "admin"),
        ("stop", 0, "helper"),
    ),
    (
        ("create", "tenant", "spot", 1, None, None, 0, None),
        ("make_key", GRANTS[2], 0),
        ("set_member", "boss", "billing"),
        ("stop", 0, 20),
        ("make_key", GRANTS[2], 0),
        ("set_member", "boss", None),
        ("stop", 0, 20),
        ("make_key", GRANTS[2], 0),
        ("set_member", "boss", "owner"),
        ("stop", 0, 20),
    ),
    (
        ("make_role", 0, GRANTS[0], 0),
        ("give_role", 0),
        ("delete_role", 0, 0),
        ("set_member", "helper", None),
        ("delete_role", 0, 0),
        ("set_member", "helper", "member"),
    ),
    # Who has nothing left, and who is suspended
    (
        ("set_balance", "buyer", 1),
        _ORDINARY,
        ("obey", 1),
        ("wait", 100),
        *(_ORDINARY, _pod(), _cpu(), _RESTART, _STOP),
        ("obey", 1),
        _RESTART,
        ("set_balance", "buyer", 10**6),
        _RESTART,
    ),
    (
        _ORDINARY,
        ("obey", 1),
        ("suspend", "buyer", True),
        *(_ORDINARY, _pod(), _cpu(), _RESTART, _STOP),
        ("obey", 1),
        *(_RESTART, ("suspend", "buyer", False), _RESTART),
    ),
    (*_IN_MAINTENANCE, ("suspend", "tenant", True), ("set_balance", "buyer", 0))
    + (("create", "tenant", "spot", 1, None, None, 0, None), _ORDINARY, _cpu(), _cpu("tenant")),
    (
        _PROVIDERS,
        ("set_balance", "provider", 0),
        _OWNERS,
        _OBEY,
        ("wait", 3600),
        *(_PAIR, _OWNERS, _OWNERS, _STOP, _OBEY, _RESTART),
    ),
    # What is stopped for it, after a while
    (
        _ORDINARY,
        ("obey", 1),
        _ORDINARY,
        ("suspend", "buyer", True),
        ("sweep",),
        ("wait", 3600),
        ("sweep",),
        *(("obey", 1), _RESTART, ("suspend", "buyer", False), _RESTART, ("sweep",)),
    ),
    (
        *(_PROVIDERS, _OWNERS, _OBEY, ("create", "provider", "community", 1, None, None, 0, None), _cpu()),
        *(("obey", 1), ("set_balance", "provider", 0), ("set_balance", "buyer", 0), ("sweep",)),
        *(("wait", 3600), ("sweep",), ("cancel", 0, 0), ("sweep",), _RESTART),
        *(("set_balance", "provider", 10**6), ("set_balance", "buyer", None), ("sweep",), _RESTART),
    ),
    (
        *(_CONTRACT, ("enable_reservations", "tenant", False), _OWN, _OBEY),
        ("reserve", 1, frozenset({0}), ("tenant",), (), None, None, 0, None),
        *(("amend_audience", 0, ("tenant", "buyer"), 0), ("amend_audience", 0, ("buyer",), 0)),
        ("amend_audience", 0, ("tenant",), 0),
    ),
    # Silent for an hour before anybody noticed
    (
        _OWNERS,
        _OBEY,
        ("fall_silent", 0),
        ("wait", 3600),
        ("sweep",),
        ("set_balance", "provider", 12),
        _OWNERS,
    ),
    (("race", (_ORDINARY, ("suspend", "buyer", True))), _ORDINARY),
)
OPENING = st.sampled_from(OPENINGS)
