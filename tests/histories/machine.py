"""Histories of a small fleet, step by step, each answer and each state held against the model."""

import copy
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

from django.db import connection
from hypothesis import currently_in_test_context, note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.concurrency.conftest import together
from tests.histories.asking import Call
from tests.histories.comparing import (
    compare,
    compare_all,
    compare_announcements,
    compare_invariants,
    compare_views,
    look,
)
from tests.histories.drawing import HOSTS, STEP
from tests.histories.facts import UNTOLD, Credential, Disagreement, Host, Seen, Unit, require
from tests.histories.openings import OPENING
from tests.histories.people import Model
from tests.histories.real import (
    ADDRESSES,
    AMD,
    MODELS,
    ORGS,
    PRICES,
    REGIONS,
    TEMPLATES,
    VRAM,
    Real,
    Runs,
    placed,
)
from tests.histories.steps import Steps
from tests.support import flush

STEP_SECONDS = 4
BEAT_SECONDS = 40
sizes = st.lists(st.integers(1, 2), min_size=2, max_size=4)
# By node: what its host tells, and where it stands.
hosts = st.lists(st.sampled_from([UNTOLD] * 4 + list(HOSTS)), min_size=4, max_size=4)
places = st.sampled_from([("north", "north", "north", None), ("north", "south", None, "south")])


def _tell(words: str) -> None:
    if currently_in_test_context():
        note(words)


class Histories(RuleBasedStateMachine):
    """Every mutating operation, by anybody, in any order, with the clock moving."""

    def __init__(self) -> None:
        super().__init__()
        flush.flush()
        self.real = Real()
        self.model = Model(self.real.now)
        self.silent: set[str] = set()
        self.turn = 0
        self.runs: Runs | None = None  # as they were read in this step
        self.sound = False  # whether the last step went well

    @initialize(
        first=sizes,
        second=sizes,
        pods=sizes,
        owner=st.sampled_from(["buyer", "provider"]),
        opening=OPENING,
        told=hosts,
        regions=places,
    )
    def begin(
        self,
        first: list[int],
        second: list[int],
        pods: list[int],
        owner: str,
        opening: Sequence[Any],
        told: Sequence[Host] = (UNTOLD,) * 4,
        regions: Sequence[str | None] = ("north", "south", None, "south"),
    ) -> None:
        """A node of the provider's, one that is interruptible, and two for pods, the second of AMD."""
        model, real = self.model, self.real
        for org in ORGS:
            model.credentials[org] = Credential(org)
        model.credentials["boss"] = Credential("tenant", session=True)
        model.credentials["helper"] = Credential("tenant", session=True, permissions=("compute.read",))
        model.prices = {(slug, tier): cents for slug in MODELS for tier, cents in PRICES.items()}
        model.prices |= {(size, ""): cents for size, cents in real.sizes.items()}
        model.sizes, model.templates = real.given_by_size(), dict(TEMPLATES)
        model.vram, model.amd, model.regions = dict(VRAM), AMD, frozenset(REGIONS)
        model.pool = ADDRESSES
        self._node("provider", "qemu", False, first, MODELS[0], told[0], regions[0])
        self._node(owner, "qemu", True, second[:2], MODELS[0], told[1], regions[1])
        self._node("provider", "runc", False, pods[:2], MODELS[0], told[2], regions[2])
        self._node("provider", "runc", True, pods[-1:], MODELS[2], told[3], regions[3])
        self.steps = Steps(model, real)
        model.ssh_keys = {pk: (org, 0) for pk, org in real.ssh_keys.items()}
        for name, *args in opening:
            self.take(name, tuple(args))

    def _node(
        self,
        owner: str,
        runtime: str,
        interruptible: bool,
        gpus: list[int],
        of: str,
        host: Host,
        region: str | None,
    ) -> None:
        klass = "vfio-group" if runtime == "qemu" else "device-request"
        units = {number: Unit(size, of, klass) for number, size in enumerate(gpus)}
        name = self.real.node(owner, runtime, interruptible, units, host, region)
        self.model.add_node(name, owner, runtime, interruptible, units, host, region)

    @rule(drawn=STEP)
    def step(self, drawn: tuple[Any, ...]) -> None:
        """One step, and whether all is as it should be after it."""
        self.take(*self.steps.possible(drawn[0], drawn[1:]))

    def take(self, name: str, args: tuple[Any, ...]) -> None:
        """Do it, a moment later, and look."""
        self.sound, self.runs = False, None
        self.tick(STEP_SECONDS)
        if name in vars(Histories):
            getattr(self, name)(*args)
        else:
            self.do(getattr(self.steps, name)(*args))
        self.turn += 1
        node = self.steps.one(self.model.nodes, self.turn)
        compare(self.model, look(self.real, [node], self.runs))
        compare_invariants()
        compare_views(self.model, self.real, self.turn)
        self.sound = True

    def teardown(self) -> None:
        if self.sound:
            compare_all(self.model, self.real)

    def do(self, call: Call | None) -> None:
        """Send a request, and hear the model on its answer."""
        if call is None:
            return
        _tell(call.words)
        status, body = call.send()
        self.runs = self.real.runs()
        call.told(self.model, Seen(status, body, placed(self.runs)))
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

    # What is no request

    def wait(self, seconds: int) -> None:
        self.tick(seconds)
        self.real.sign_in()

    def fall_silent(self, number: int) -> None:
        """The node is not heard from any more, or is again."""
        self.silent ^= {self.steps.one(self.model.nodes, number)}

    def sweep(self) -> None:
        self.real.sweep()
        self.model.sweep()
        compare_announcements(self.model)

    def set_price(self, slug: str, tier: str, cents: int) -> None:
        self.real.set_price(slug, tier, cents)
        self.model.set_price(slug, tier, cents)

    def upgrade(self, number: int, level: int) -> None:
        """The node's agent is of that level from now on, and is heard."""
        node = self.steps.one(self.model.nodes, number)
        self.real.levels[node] = level
        status, _ = self.real.ask("GET", "/v1/agent/work", node)
        require(status == 200, f"{node} asks for its work: {status}")
        self.model.hear(node, level)

    def join(self, number: int, on: bool) -> None:
        node = self.steps.one(self.model.nodes, number)
        self.real.join(node, on)
        self.model.join(node, on)

    def set_infiniband(self, org: str, on: bool) -> None:
        self.real.set_infiniband(org, on)
        self.model.set_infiniband(org, on)

    # What happens at once

    def race(self, drawn: Sequence[tuple[Any, ...]]) -> None:
        """Several requests at one moment: what comes of them is what one after the other could have given."""
        self.steps.natural = True
        made = [getattr(self.steps, name)(*args) for name, *args in drawn]
        self.steps.natural = False
        calls = [call for call in made if call is not None]
        if len(calls) < 2:
            return
        for call in calls:
            _tell(f"at once: {call.words}")
        answers = together(*(call.send for call in calls))
        connection.close()
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        self.runs = self.real.runs()
        written, where = look(self.real, self.model.nodes, self.runs), placed(self.runs)
        why = []
        for order in itertools.permutations(range(len(calls))):
            model = copy.deepcopy(self.model)
            model.racing = len(calls)
            model.repeated = {
                key for key, times in Counter(call.key for call in calls).items() if key and times > 1
            }
            try:
                for number in order:
                    status, body = answers[number]
                    calls[number].told(model, Seen(status, body, where))
                compare(model, written)
            except Disagreement as error:
                why.append(f"in the order {order}: {error}")
                continue
            model.racing, model.repeated = 0, set()
            self.model = self.steps.model = model
            for call, (status, body) in zip(calls, answers, strict=True):
                if status == 200:
                    call.keep(body)
            return
        raise Disagreement("no order of the requests gives what there is: " + "; ".join(why))
