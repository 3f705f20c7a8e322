"""Histories of a small fleet, step by step, each answer and each state held against the model."""

import copy
import itertools
import os
from typing import Any

from django.db import connection
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.concurrency.conftest import together
from tests.histories.comparing import compare, compare_views
from tests.histories.facts import Credential, Disagreement, Seen, Unit, require
from tests.histories.people import Model
from tests.histories.real import MODELS, ORGS, PRICES, Real
from tests.histories.steps import RACE, STEPS, Call, Steps, which
from tests.support import flush

STEP_SECONDS = 4
BEAT_SECONDS = 40
sizes = st.lists(st.integers(1, 2), min_size=2, max_size=4)


def _step(name: str, drawn: tuple[Any, ...]) -> Any:
    def step(self: "Histories", args: tuple[Any, ...]) -> None:
        self.act(name, args)

    step.__name__ = step.__qualname__ = name
    return rule(args=st.tuples(*drawn))(step)


class Histories(RuleBasedStateMachine):
    """Every mutating operation, by anybody, in any order, with the clock moving."""

    def __init__(self) -> None:
        super().__init__()
        flush.flush()
        self.real = Real()
        self.model = Model(self.real.now)
        self.silent: set[str] = set()
        self.turn = 0

    @initialize(first=sizes, second=sizes, pods=sizes, owner=st.sampled_from(["buyer", "provider"]))
    def begin(self, first: list[int], second: list[int], pods: list[int], owner: str) -> None:
        """A node of the provider's, one that is interruptible, and one for pods."""
        model, real = self.model, self.real
        for org in ORGS:
            model.credentials[org] = Credential(org)
        model.credentials["boss"] = Credential("tenant", session=True)
        model.credentials["helper"] = Credential("tenant", session=True, permissions=("compute.read",))
        model.prices = {(slug, tier): cents for slug in MODELS for tier, cents in PRICES.items()}
        self._node("provider", "qemu", False, first)
        self._node(owner, "qemu", True, second[:2])
        self._node("provider", "runc", False, pods[:2])
        self.steps = Steps(model, real)
        for org in ORGS:
            self.do(self.steps.add_ssh_key(org, 0, 0))

    def _node(self, owner: str, runtime: str, interruptible: bool, gpus: list[int]) -> None:
        klass = "vfio-group" if runtime == "qemu" else "device-request"
        units = {number: Unit(size, MODELS[0], klass) for number, size in enumerate(gpus)}
        name = self.real.node(owner, runtime, interruptible, units)
        self.model.add_node(name, owner, runtime, interruptible, units)

    for _name, _drawn in STEPS.items():
        vars()[_name] = _step(_name, _drawn)

    def act(self, name: str, args: tuple[Any, ...]) -> None:
        self.tick(STEP_SECONDS)
        self.do(getattr(self.steps, name)(*args))

    def do(self, call: Call | None) -> None:
        """Send a request, and hear the model on its answer."""
        if call is None:
            return
        note(call.words)
        status, body = call.send()
        call.told(self.model, Seen(status, body, self.real.placed()))
        if status == 200:
            call.keep(body)

    def tick(self, seconds: float) -> None:
        """Time goes on, and nodes that are not silent are heard from now and then."""
        self.model.now = self.real.travel(seconds)
        for node in self.model.nodes.values():
            if node.id not in self.silent and (self.model.now - node.seen).total_seconds() > BEAT_SECONDS:
                self.beat(node.id)

    def beat(self, node: str) -> None:
        status, _ = self.real.ask("GET", "/v1/agent/work", node)
        require(status == 200, f"{node} asks for its work: {status}")
        self.model.hear(node)

    @rule(seconds=st.sampled_from([30, 100, 3600, 3 * 3600, 25 * 3600, 8 * 86400]))
    def wait(self, seconds: int) -> None:
        self.tick(seconds)

    @rule(number=which)
    def fall_silent(self, number: int) -> None:
        self.silent ^= {self.steps.one(self.model.nodes, number)}
        self.tick(STEP_SECONDS)

    @rule()
    def sweep(self) -> None:
        self.tick(STEP_SECONDS)
        self.real.sweep()
        self.model.sweep()

    @rule(slug=st.sampled_from(MODELS), tier=st.sampled_from(list(PRICES)), cents=st.integers(1, 300))
    def set_price(self, slug: str, tier: str, cents: int) -> None:
        self.tick(STEP_SECONDS)
        self.real.set_price(slug, tier, cents)
        self.model.set_price(slug, tier, cents)

    @rule(number=which)
    def give_role(self, number: int) -> None:
        role = self.steps.one(self.model.roles, number)
        if role is not None:
            self.tick(STEP_SECONDS)
            self.real.give_role("helper", role)
            self.model.give_role("helper", role)

    @rule(drawn=RACE)
    def race(self, drawn: list[tuple[Any, ...]]) -> None:
        """Several requests at one moment: what comes of them is what one after the other could have given."""
        self.tick(STEP_SECONDS)
        calls = []
        for name, *args in drawn:
            call = getattr(self.steps, name)(*args)
            if call is not None and not (name in ("obey", "inventory") and calls):
                calls.append(call)
        if len(calls) < 2:
            return
        for call in calls:
            note(f"at once: {call.words}")
        answers = together(*(call.send for call in calls))
        connection.close()
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        placed = self.real.placed()
        why = []
        for order in itertools.permutations(range(len(calls))):
            model = copy.deepcopy(self.model)
            model.racing = len(calls)
            try:
                for number in order:
                    status, body = answers[number]
                    calls[number].told(model, Seen(status, body, placed))
                compare(model, self.real)
            except Disagreement as error:
                why.append(f"in the order {order}: {error}")
                continue
            model.racing = 0
            self.model = self.steps.model = model
            return
        raise Disagreement("no order of the requests gives what there is: " + "; ".join(why))

    @invariant()
    def agrees(self) -> None:
        if not self.model.nodes:
            return
        self.turn += 1
        compare(self.model, self.real)
        compare_views(self.model, self.real, self.turn)


SHRINK_SECONDS = int(os.environ.get("HISTORIES_SHRINK_SECONDS", "60"))
