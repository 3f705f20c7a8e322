"""What every step is made with: who asks, and what of the things there are is meant."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.histories.drawing import GRANTS, ON_CONTRACTS, ON_WORKLOADS
from tests.histories.facts import Contract, Seen, Workload
from tests.histories.people import Model
from tests.histories.real import Real


@dataclass(frozen=True)
class Call:
    """One request: how it is sent, and what the model has to say of its answer."""

    words: str
    send: Callable[[], tuple[int, Any]]
    told: Callable[[Model, Seen], None]
    keep: Callable[[Any], None] = lambda body: None
    key: str | None = None


class Asking:
    """The model and the platform, and how steps find their way in them."""

    def __init__(self, model: Model, real: Real) -> None:
        self.model, self.real = model, real
        self.natural = False  # whether everybody does only what is natural for them

    def asker(self, number: int | str, natural: str) -> str:
        """Whoever it is natural for; now and then the newest credential (20), or anybody; or who is named."""
        if isinstance(number, str):
            return number
        if number < 20 or self.natural:
            return natural
        everybody = list(self.model.credentials)
        return everybody[-1 if number == 20 else (number * 7 + self.model.now.second) % len(everybody)]

    def one(self, things: Any, number: int) -> Any:
        listed = list(things)
        return listed[number % len(listed)] if listed else None

    def workloads(self) -> list[Workload]:
        """The workloads, those that are not over first, of these the latest."""
        listed = reversed(list(self.model.workloads.values()))
        return sorted(listed, key=lambda workload: workload.status == "terminated")

    def contracts(self) -> list[Contract]:
        """The reservations, those that are not over first."""
        return sorted(self.model.contracts.values(), key=self.model.ended)

    def possible(self, name: str, args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
        """The step, or where there is nothing to do it to, the one that makes something."""
        model, first = self.model, args[0] if args and isinstance(args[0], int) else 0
        if name in ON_CONTRACTS and not model.contracts:
            units = frozenset({first % 3, (first + 1) % 3})
            return "reserve", (0, units, ("tenant",), ("manager",), None, None, 0, None)
        if name in ON_WORKLOADS and not model.workloads:
            tier = ("community", "spot")[first % 2]
            return "create", (("tenant", "buyer")[first % 2], tier, 1, None, None, 0, None)
        if name in ("change_role", "delete_role", "give_role") and not model.roles:
            return "make_role", (first, GRANTS[first % len(GRANTS)], 0)
        if name in ("revoke_key", "update_key") and not self.real.key_ids:
            return "make_key", (GRANTS[first % len(GRANTS)], 0)
        return name, args
