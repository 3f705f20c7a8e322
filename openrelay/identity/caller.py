"""Who is asking, and what they may do: computed once a request, from a key or a session."""

import dataclasses
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from openrelay.audit.actor import Actor
from openrelay.core.errors import Forbidden
from openrelay.core.ids import parse_id
from openrelay.identity.accounts import ORDINARY, Account
from openrelay.identity.addresses import in_ranges
from openrelay.identity.permissions import PLATFORM_ACTIONS, SESSION_ONLY_ACTIONS
from openrelay.identity.roles import HeldRole

Kind = Literal["user", "api_key", "node"]

# The same for an organization of somebody else and for one that never existed.
FOREIGN_ORGANIZATION = "You do not act in this organization. Use the id of one that GET /v1/whoami shows you."


@dataclass(frozen=True, slots=True)
class Place:
    """One organization a person is a member of."""

    organization_id: uuid.UUID
    organization_name: str
    is_platform_ops: bool
    held: HeldRole
    account: Account = ORDINARY

    @property
    def actions(self) -> frozenset[str]:
        """What the person may do there."""
        return self.held.actions(platform_ops=self.is_platform_ops)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Someone acting in one organization.

    `actions` is what is left of the role and, for a key, its ceiling. `is_operator` says that the
    organization is the platform ops one; being an operator in something takes the action as well.
    """

    kind: Kind
    organization_id: uuid.UUID
    organization_name: str
    is_operator: bool
    actions: frozenset[str]
    actor: Actor
    account: Account = ORDINARY
    user_id: uuid.UUID | None = None
    key_id: uuid.UUID | None = None
    session_id: uuid.UUID | None = None
    node_id: uuid.UUID | None = None
    # A person's role here.
    held: HeldRole | None = None
    # A key's own ceiling, to tell what refused: the key or its maker's role.
    ceiling: frozenset[str] | None = None
    # Every organization a person may act in.
    places: tuple[Place, ...] = ()

    @property
    def role(self) -> str | None:
        """The id of a person's role here."""
        return self.held.id if self.held else None

    @property
    def principal(self) -> str:
        """Who it is, without where from: "user:<id>", "key:<id>" or "node:<id>"."""
        return self.actor.name

    def may(self, action: str) -> bool:
        """Whether the caller holds an action in the organization it acts in."""
        return action in self.actions

    def operates(self, action: str) -> bool:
        """Whether the caller is an operator with the action at hand."""
        return self.is_operator and action in self.actions

    def require(self, action: str) -> None:
        """Refuse a caller that does not hold `action`.

        Raises Forbidden (FORBIDDEN) with `permission` and `deniedBy`: "platform" for what only operators or
        people can hold, "key" when the key's ceiling lacks it, "role" when the role does.
        """
        if action in self.actions:
            return
        raise Forbidden(
            f"This needs {action or 'a permission that nobody holds'}, and {self._lack(action)}.",
            permission=action,
            deniedBy=self.denied_by(action),
        )

    def denied_by(self, action: str) -> str:
        """What keeps `action` from a caller that lacks it: "platform", "key" or "role"."""
        if self.kind == "node" or (action in PLATFORM_ACTIONS and not self.is_operator):
            return "platform"
        if self.kind == "api_key":
            if action in SESSION_ONLY_ACTIONS:
                return "platform"
            if self.ceiling is not None and action not in self.ceiling:
                return "key"
        return "role"

    def _lack(self, action: str) -> str:
        match self.denied_by(action):
            case "platform" if action in PLATFORM_ACTIONS:
                return "only the platform's operators can hold it"
            case "platform":
                return "this kind of credential cannot hold it"
            case "key":
                return "the API key's permissions do not include it; use a key that has it"
        if self.kind == "api_key":
            return "the role of the person who made this key does not include it"
        return "your role in this organization does not include it; ask an owner or admin"

    def in_org(self, organization_id: uuid.UUID | str) -> "Caller":
        """The caller acting in that organization.

        Raises Forbidden (FORBIDDEN), the same for another's organization as for one that does not exist; also
        for an address that the role there does not serve from.
        """
        wanted = organization_id if isinstance(organization_id, uuid.UUID) else parse_id(organization_id)
        if wanted is not None and wanted == self.organization_id:
            return self
        for place in self.places:
            if place.organization_id == wanted:
                there = dataclasses.replace(
                    self,
                    organization_id=place.organization_id,
                    organization_name=place.organization_name,
                    is_operator=place.is_platform_ops,
                    actor=dataclasses.replace(
                        self.actor,
                        organization_id=place.organization_id,
                        is_platform=place.is_platform_ops,
                    ),
                    account=place.account,
                    held=place.held,
                    actions=place.actions,
                )
                return serving(there, place.held)
        raise Forbidden(FOREIGN_ORGANIZATION)


class AddressRefused(Forbidden):
    """403: a live credential, used from an address that its key or role does not serve from.

    `caller` is whom it stands for, who may do nothing from there.
    """

    def __init__(self, message: str, *, caller: Caller, denied_by: str) -> None:
        super().__init__(message, deniedBy=denied_by)
        self.caller = dataclasses.replace(caller, actions=frozenset(), places=())


def serving(caller: Caller, role: HeldRole | None, key_ranges: Sequence[str] = ()) -> Caller:
    """The caller, when the address it comes from lies in its key's ranges, if there are any, and its role's.

    Raises AddressRefused (FORBIDDEN).
    """
    address = caller.actor.source_ip
    if key_ranges and not in_ranges(address, key_ranges):
        raise AddressRefused(
            "This API key may not be used from this address. Use it from one of its address ranges.",
            caller=caller,
            denied_by="key",
        )
    if role is not None and not role.serves_from(address):
        raise AddressRefused(
            f"The role {role.name} may not be used from this address. Use it from one of its address ranges.",
            caller=caller,
            denied_by="role",
        )
    return caller
