"""A role as somebody holds it, built-in or an organization's own."""

from dataclasses import dataclass
from functools import lru_cache

from openrelay.identity.addresses import in_ranges
from openrelay.identity.permissions import BUILTIN_ROLES, EVERYONE, PLATFORM_ACTIONS, actions_of, role_actions


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRole:
    """What a role gives, and the conditions on all that its holders do, also by keys they made.

    An empty condition narrows nothing. A built-in role has none.
    """

    id: str
    name: str
    custom: bool = False
    permissions: tuple[str, ...] = ()
    ip_ranges: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()
    models: tuple[str, ...] = ()

    def actions(self, *, platform_ops: bool) -> frozenset[str]:
        """Every action it gives, in the platform ops organization or in another."""
        if not self.custom:
            return role_actions(self.id, platform_ops=platform_ops)
        held = actions_of(self.permissions) | EVERYONE
        return held if platform_ops else held - PLATFORM_ACTIONS

    def serves_from(self, address: str) -> bool:
        """Whether its holders may use it from an address."""
        return not self.ip_ranges or in_ranges(address, self.ip_ranges)


@lru_cache(maxsize=256)
def builtin(role: str) -> HeldRole:
    """A built-in role by its id; an id that no longer exists gives what everyone has."""
    known = BUILTIN_ROLES.get(role)
    return HeldRole(id=role, name=known.name if known else role)
