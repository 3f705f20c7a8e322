"""What can be granted: areas with levels, the actions a level gives, and the roles that hold them.

A permission id is `area.level`; a level includes the lower ones of its area. An action is `area.verb`, what
an operation asks for.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final


@dataclass(frozen=True, slots=True)
class Level:
    """One step of an area; `adds` are the actions it has over the step below."""

    name: str
    label: str
    description: str
    adds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Area:
    """One subject of permissions; its levels, lowest first."""

    id: str
    label: str
    levels: tuple[Level, ...]


@dataclass(frozen=True, slots=True)
class BuiltinRole:
    """A built-in role. `everything` marks the ones that hold all an organization can have."""

    id: str
    name: str
    description: str
    grants: tuple[str, ...]
    everything: bool = False


@dataclass(frozen=True, slots=True)
class Template:
    """A set of permissions to start a key from."""

    id: str
    name: str
    description: str
    permissions: tuple[str, ...]
    provider_only: bool = False


AREAS: Final = (
    Area(
        "reservation",
        "Reservations",
        (
            Level(
                "read",
                "Read",
                "See the reservations and units of nodes you have to do with.",
                ("reservation.read",),
            ),
            Level(
                "capacity",
                "Capacity",
                "Release reserved units to the spot market and take them back.",
                ("reservation.capacity",),
            ),
            Level(
                "manage",
                "Manage",
                "Make, change and cancel reservations. Only for the platform's operators.",
                ("reservation.manage",),
            ),
        ),
    ),
    Area(
        "provider",
        "Provider",
        (
            Level(
                "read", "Read", "See your nodes, provisioning tokens and reservations.", ("provider.read",)
            ),
            Level(
                "write",
                "Write",
                "Enrol nodes, change their status and evict spot workloads.",
                ("provider.write",),
            ),
        ),
    ),
    Area(
        "compute",
        "Compute",
        (
            Level(
                "read",
                "Read",
                "See VMs and pods, their logs and metrics, and what is free.",
                ("compute.read",),
            ),
            Level("operate", "Operate", "Stop, restart and change VMs and pods.", ("compute.operate",)),
            Level(
                "write", "Write", "Create and terminate VMs and pods.", ("compute.create", "compute.delete")
            ),
        ),
    ),
    Area(
        "catalog",
        "Catalog",
        (Level("read", "Read", "See GPU models, locations, prices.", ("catalog.read",)),),
    ),
    Area("audit", "Audit log", (Level("read", "Read", "See who changed what.", ("audit.read",)),)),
    Area(
        "apikey",
        "API keys",
        (
            Level("read", "Read", "See the organization's API keys.", ("apikey.read",)),
            Level(
                "write",
                "Write",
                "Create, edit and revoke API keys.",
                ("apikey.create", "apikey.revoke", "apikey.update"),
            ),
        ),
    ),
    Area(
        "self",
        "Yourself",
        (Level("read", "Read", "See who you are here and what you may do.", ("self.read",)),),
    ),
    Area(
        "policy",
        "Access checks",
        (Level("read", "Read", "See what others may do, and why.", ("policy.read",)),),
    ),
    Area(
        "role",
        "Roles",
        (
            Level("read", "Read", "See the roles.", ("role.read",)),
            Level("manage", "Manage", "Make and change roles.", ("role.manage",)),
        ),
    ),
    Area(
        "member",
        "Members",
        (
            Level("read", "Read", "See the members, and leave.", ("member.read", "member.leave")),
            Level(
                "manage", "Manage", "Invite, change and remove members.", ("member.invite", "member.manage")
            ),
        ),
    ),
    Area(
        "org",
        "Organization",
        (
            Level("read", "Read", "See the organization's details.", ("org.read",)),
            Level("write", "Write", "Change the organization's details.", ("org.update",)),
            Level("manage", "Manage", "Delete the organization.", ("org.delete",)),
        ),
    ),
    Area(
        "sshkey",
        "SSH keys",
        (
            Level("read", "Read", "See the organization's SSH keys.", ("sshkey.read",)),
            Level("write", "Write", "Add and delete SSH keys.", ("sshkey.write",)),
        ),
    ),
    Area(
        "webhook",
        "Webhooks",
        (
            Level("read", "Read", "See webhooks and what was sent.", ("webhook.read",)),
            Level("write", "Write", "Add, change and delete webhooks.", ("webhook.write",)),
        ),
    ),
    Area("usage", "Usage", (Level("read", "Read", "See what was used.", ("usage.read",)),)),
    Area("billing", "Billing", (Level("read", "Read", "See balance and charges.", ("billing.read",)),)),
    Area(
        "accessrequest",
        "Access requests",
        (Level("create", "Create", "Ask the organization for more access.", ("accessrequest.create",)),),
    ),
)


def _levels() -> dict[str, tuple[str, ...]]:
    levels: dict[str, tuple[str, ...]] = {}
    for area in AREAS:
        held: tuple[str, ...] = ()
        for level in area.levels:
            held += level.adds
            levels[f"{area.id}.{level.name}"] = held
    return levels


#: Every permission id with all the actions it gives.
PERMISSIONS: Final = _levels()
#: Every action there is.
ACTIONS: Final = frozenset(action for actions in PERMISSIONS.values() for action in actions)
#: What only members and keys of the platform ops organization can hold.
PLATFORM_ACTIONS: Final = frozenset({"reservation.manage"})
#: What no key can hold: it takes a signed-in person.
SESSION_ONLY_ACTIONS: Final = frozenset({"apikey.create", "apikey.update", "role.manage", "org.delete"})
#: What everyone holds who is known at all.
EVERYONE: Final = frozenset({"self.read"})

_TOP = tuple(
    f"{area.id}.{'capacity' if area.id == 'reservation' else area.levels[-1].name}" for area in AREAS
)
_READS = tuple(f"{area.id}.{area.levels[0].name}" for area in AREAS if area.id != "reservation")


def _with(base: Iterable[str], *raised: str) -> tuple[str, ...]:
    areas = {permission.partition(".")[0] for permission in raised}
    return tuple(p for p in base if p.partition(".")[0] not in areas) + raised


BUILTIN_ROLES: Final = {
    role.id: role
    for role in (
        BuiltinRole("owner", "Owner", "Everything in the organization.", _TOP, everything=True),
        BuiltinRole("admin", "Admin", "Everything in the organization.", _TOP, everything=True),
        BuiltinRole(
            "member",
            "Member",
            "Uses compute and sees the rest.",
            _with(_READS, "compute.write", "sshkey.write"),
        ),
        BuiltinRole(
            "billing",
            "Billing",
            "Sees usage, balance and charges.",
            ("billing.read", "usage.read", "catalog.read", "member.read", "org.read", "self.read"),
        ),
        BuiltinRole("viewer", "Viewer", "Sees everything and changes nothing.", _READS),
        BuiltinRole(
            "inference",
            "Inference",
            "Calls models and sees what that used.",
            ("catalog.read", "usage.read", "self.read"),
        ),
    )
}

KEY_TEMPLATES: Final = {
    template.id: template
    for template in (
        Template("inference", "Inference", "Sees the catalog and usage.", ("catalog.read", "usage.read")),
        Template(
            "compute_automation",
            "Compute automation",
            "Creates, operates and terminates VMs and pods.",
            ("compute.write", "catalog.read", "sshkey.write", "usage.read"),
        ),
        Template("read_only", "Read only", "Sees everything and changes nothing.", _READS),
        Template(
            "provider_automation",
            "Provider automation",
            "Runs a provider's nodes and the reserved capacity on them.",
            ("provider.write", "reservation.capacity", "catalog.read"),
            provider_only=True,
        ),
    )
}


def actions_of(permissions: Iterable[str]) -> frozenset[str]:
    """The actions that permission ids give. An id that no longer exists gives none."""
    return _actions_of(tuple(permissions))


# Every request asks, and there are few distinct ceilings.
@lru_cache(maxsize=4096)
def _actions_of(permissions: tuple[str, ...]) -> frozenset[str]:
    return frozenset(action for permission in permissions for action in PERMISSIONS.get(permission, ()))


@lru_cache(maxsize=256)
def role_actions(role: str, *, platform_ops: bool) -> frozenset[str]:
    """The actions of a built-in role; in the platform ops organization everything includes the platform's."""
    known = BUILTIN_ROLES.get(role)
    if known is None:
        return EVERYONE
    held = actions_of(known.grants) | EVERYONE
    return held | PLATFORM_ACTIONS if platform_ops and known.everything else held


def permissions_held(actions: frozenset[str]) -> list[str]:
    """The permission ids whose every action is among `actions`, for display."""
    return [permission for permission, needed in PERMISSIONS.items() if actions.issuperset(needed)]
