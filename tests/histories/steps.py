"""The steps of a history: numbers that were drawn, turned into requests on what is there just then.

A step names things by number, counted round: the third reservation, the fifth workload. So a history keeps
its sense when a part of it is left out.
"""

import copy
import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.histories.facts import POD, VM, Contract, Seen, Unit, Workload
from tests.histories.people import Model
from tests.histories.real import INVENTED, MODELS, ORGS, Real, address, public_key

HOUR = dt.timedelta(hours=1)
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


@dataclass(frozen=True)
class Call:
    """One request: how it is sent, and what the model has to say of its answer."""

    words: str
    send: Callable[[], tuple[int, Any]]
    told: Callable[[Model, Seen], None]
    keep: Callable[[Any], None] = lambda body: None
    key: str | None = None


which = st.integers(0, 7)
node = st.sampled_from([0, 0, 0, 0, 1, 1, 2])
who = st.integers(0, 23)
some = st.frozensets(st.integers(0, 3), min_size=1, max_size=2)
hours = st.sampled_from([None, 1, 3])
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
_OBEY, _STOP, _RESTART = ("obey", 0), ("stop", 0, 0), ("restart", 0, 0)
_FOR_AN_HOUR = ("reserve", 0, frozenset({0, 1}), ("tenant",), ("manager",), None, 1, 0, None)
_REPEATED = ("create", "buyer", "spot", 1, None, None, 0, "first")


def _said(state: str, how: str = "next") -> tuple[Any, ...]:
    """What the first node's agent says of its latest guest."""
    return "say", 0, ((0, state, ""),), how


def _hardware(change: str, how: str = "next") -> tuple[Any, ...]:
    """What becomes of the first node's first unit."""
    return "inventory", 0, 0, change, how


OPENING = st.sampled_from(
    [
        (),
        (_CONTRACT, _RELEASE, _SPOT, _OBEY),
        (_CONTRACT, _OWN, _OBEY, _STOP, _OWN),
        (_OWNERS_SPOT, _OWNERS_SPOT, _CONTRACT, _OBEY, _OWN),
        (_OWNERS, _OWNERS, _OWNERS, _CONTRACT, _OWN),
        (_CONTRACT, ("inventory", 0, 2, "model", "next"), _OWN, _SPOT),
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
        (("make_key", GRANTS[2], 0), ("revoke_key", 0, 0), ("make_key", BEYOND, 0)),
    ]
)


class Steps:
    """Makes the calls; each is None where there is nothing to do it to."""

    def __init__(self, model: Model, real: Real) -> None:
        self.model, self.real = model, real
        self.natural = False  # whether everybody does only what is natural for them

    def asker(self, number: int, natural: str) -> str:
        """Whoever it is natural for, or now and then anybody else."""
        everybody = list(self.model.credentials)
        return (
            natural
            if number < 20 or self.natural
            else everybody[(number * 7 + self.model.now.second) % len(everybody)]
        )

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
        if name == "revoke_key" and not self.real.key_ids:
            return "make_key", (GRANTS[first % len(GRANTS)], 0)
        return name, args

    # Reservations

    def reserve(
        self,
        number: int,
        units: frozenset[int],
        audience: Sequence[str],
        managers: Sequence[str],
        start: int | None,
        end: int | None,
        by: int,
        key: str | None,
    ) -> Call | None:
        node = self.one(self.model.nodes, number)
        # Now and then a unit that the node never had.
        there = len(self.model.nodes[node].units)
        units = units if by % 8 == 7 else frozenset(unit % there for unit in units)
        asker = self.asker(by, "platform")
        starts = None if start is None else self.model.now + dt.timedelta(seconds=start)
        ends = None if end is None else self.model.now + HOUR * end + dt.timedelta(seconds=start or 0)
        body: dict[str, Any] = {
            "unitIds": [address(unit) for unit in sorted(units)],
            "allowedOrgIds": self.real.org_ids(audience),
            "managingOrgIds": self.real.org_ids(managers),
        }
        body |= {} if starts is None else {"startsAt": starts.isoformat()}
        body |= {} if ends is None else {"endsAt": ends.isoformat()}
        return Call(
            f"{asker} reserves {sorted(units)} of {node} from {starts} to {ends}",
            lambda: self.real.ask("POST", f"/v1/nodes/{node}/reservations", asker, body, key),
            lambda model, seen: model.reserve(
                seen,
                asker,
                node,
                units=units,
                audience=audience,
                managers=managers,
                start=starts,
                end=ends,
                key=key,
            ),
            key=key,
        )

    def _on_contract(
        self, number: int, by: int, rest: str, body: Any, told: Callable[[Model, Seen, str, str], None]
    ) -> Call | None:
        contract = self.one(self.contracts(), number)
        if contract is None:
            return None
        node = self.model.nodes[contract.node]
        natural = "platform"
        if rest in ("/release", "/reclaim"):
            natural = [node.owner, *sorted(contract.managers), "platform"][by % (2 + len(contract.managers))]
        asker = self.asker(by, natural)
        path = f"/v1/nodes/{contract.node}/reservations/{contract.id}{rest}"
        return Call(
            f"{asker}: {rest or 'amend'} {body} of {contract.id}",
            lambda: self.real.ask("POST" if rest else "PATCH", path, asker, body),
            lambda model, seen: told(model, seen, asker, contract.id),
        )

    def amend_end(self, number: int, end: int | None, by: int) -> Call | None:
        ends = None if end is None else self.model.now + HOUR * end
        body = {"endsAt": None if ends is None else ends.isoformat()}
        return self._on_contract(
            number, by, "", body, lambda model, seen, asker, pk: model.amend(seen, asker, pk, end=ends)
        )

    def amend_audience(self, number: int, audience: Sequence[str], by: int) -> Call | None:
        body = {"allowedOrgIds": self.real.org_ids(audience)}
        return self._on_contract(
            number,
            by,
            "",
            body,
            lambda model, seen, asker, pk: model.amend(seen, asker, pk, audience=audience),
        )

    def amend_managers(self, number: int, managers: Sequence[str], by: int) -> Call | None:
        body = {"managingOrgIds": self.real.org_ids(managers)}
        return self._on_contract(
            number,
            by,
            "",
            body,
            lambda model, seen, asker, pk: model.amend(seen, asker, pk, managers=managers),
        )

    def reaffirm(self, number: int, by: int) -> Call | None:
        return self._on_contract(
            number,
            by,
            "",
            {"reaffirm": True},
            lambda model, seen, asker, pk: model.amend(seen, asker, pk, reaffirm=True),
        )

    def cancel(self, number: int, by: int) -> Call | None:
        return self._on_contract(
            number, by, "/cancel", None, lambda model, seen, asker, pk: model.cancel(seen, asker, pk)
        )

    def release(self, number: int, units: frozenset[int], by: int) -> Call | None:
        units = self._mostly_held(number, units)
        body = {"unitIds": [address(unit) for unit in sorted(units)]}
        return self._on_contract(
            number, by, "/release", body, lambda model, seen, asker, pk: model.release(seen, asker, pk, units)
        )

    def reclaim(self, number: int, units: frozenset[int], dry: bool, by: int) -> Call | None:
        units = self._mostly_held(number, units)
        body = {"unitIds": [address(unit) for unit in sorted(units)], "dryRun": dry}
        return self._on_contract(
            number,
            by,
            "/reclaim",
            body,
            lambda model, seen, asker, pk: model.reclaim(seen, asker, pk, units, dry=dry),
        )

    def _mostly_held(self, number: int, units: frozenset[int]) -> frozenset[int]:
        """Of the units those that the reservation has, unless it has none of them."""
        contract = self.one(self.contracts(), number)
        return (units & contract.units if contract is not None else units) or units

    def reclaim_spot(self, number: int, units: frozenset[int] | None, dry: bool, by: int) -> Call | None:
        node = self.one(self.model.nodes, number)
        natural = self.model.nodes[node].owner if by % 2 else "manager"
        asker = self.asker(by, natural)
        org = self.model.credentials[asker].org
        body: dict[str, Any] = {"dryRun": dry}
        if units is not None:
            body["unitIds"] = [address(unit) for unit in sorted(units)]
        path = self.real.org_path(org, f"provider/nodes/{node}/reclaim-spot")
        return Call(
            f"{asker} takes spot back on {units} of {node}",
            lambda: self.real.ask("POST", path, asker, body),
            lambda model, seen: model.reclaim_spot(seen, asker, org, node, units, dry=dry),
        )

    # Workloads

    def create(
        self,
        org: str,
        tier: str,
        count: int,
        where: int | None,
        of: int | None,
        by: int,
        key: str | None,
        kind: str = VM,
    ) -> Call | None:
        asker = self.asker(by, org)
        mine = [pk for pk, (owner, _) in self.model.ssh_keys.items() if owner == org]
        ssh_key = (mine or [INVENTED])[0]
        node = None if where is None else INVENTED if where < 0 else self.one(self.model.nodes, where)
        model_slug = None if of is None else MODELS[of]
        body: dict[str, Any] = {"sshKeyIds": [ssh_key], "gpuCount": count}
        if kind == VM:
            body |= {"name": "vm", "tier": tier, "guestMemMb": 1024, "diskSizeGb": 20}
            body |= {} if node is None else {"nodeId": node}
        else:
            body |= {"image": "ghcr.io/acme/trainer:1"}
            org = self.model.credentials[asker].org
        if model_slug is not None:
            body["gpuModelId"] = str(self.real.models[model_slug].pk)
        path = self.real.org_path(org, "vms/create") if kind == VM else "/v1/pods"
        return Call(
            f"{asker} asks for a {tier} {kind} of {count} on {node}",
            lambda: self.real.ask("POST", path, asker, body, key),
            lambda model, seen: model.create(
                seen,
                asker,
                org,
                kind=kind,
                tier=tier,
                count=count,
                ssh_key=ssh_key,
                node_id=node,
                model=model_slug,
                key=key,
            ),
            key=key,
        )

    def create_cpu(self, org: str, where: int | None, of: int, by: int) -> Call | None:
        asker = self.asker(by, org)
        mine = [pk for pk, (owner, _) in self.model.ssh_keys.items() if owner == org]
        ssh_key = (mine or [INVENTED])[0]
        node = None if where is None else INVENTED if where < 0 else self.one(self.model.nodes, where)
        size, tier = self.one(self.real.sizes, of), ("community", "spot")[of % 2]
        body = {"name": "vm", "sshKeyIds": [ssh_key], "resourceSize": size, "tier": tier, "diskSizeGb": 20}
        body |= {} if node is None else {"nodeId": node}
        return Call(
            f"{asker} asks for a VM of size {size} on {node}",
            lambda: self.real.ask("POST", self.real.org_path(org, "vms/create"), asker, body),
            lambda model, seen: model.create_cpu(
                seen, asker, org, size=size, tier=tier, ssh_key=ssh_key, node_id=node
            ),
        )

    def create_pod(self, org: str, count: int, by: int, key: str | None) -> Call | None:
        return self.create(org, "community", count, None, None, by, key, kind=POD)

    def _on_workload(
        self, number: int, by: int, method: str, rest: str, body: Any, told: Callable[..., None]
    ) -> Call | None:
        workload = self.one(self.workloads(), number)
        if workload is None:
            return None
        asker = self.asker(by, workload.org)
        return Call(
            f"{asker}: {rest} {workload.kind} {workload.id} {body}",
            lambda: self.real.ask(method, f"/v1/vms/{workload.id}/{rest}", asker, body),
            lambda model, seen: told(model, seen, asker, workload.id),
        )

    def stop(self, number: int, by: int) -> Call | None:
        return self._on_workload(number, by, "POST", "stop", None, Model.stop)

    def restart(self, number: int, by: int) -> Call | None:
        return self._on_workload(number, by, "POST", "restart", None, Model.restart)

    def reboot(self, number: int, by: int) -> Call | None:
        return self._on_workload(number, by, "POST", "reboot", None, Model.reboot)

    def terminate(self, number: int, by: int) -> Call | None:
        return self._on_workload(number, by, "POST", "terminate", None, Model.terminate)

    def resize(self, number: int, more: int, by: int) -> Call | None:
        workload = self.one(self.workloads(), number)
        size = more + (workload.disk if workload is not None else 0)
        return self._on_workload(
            number,
            by,
            "POST",
            "resize-disk",
            {"newSizeGb": size},
            lambda model, seen, asker, pk: model.resize(seen, asker, pk, size),
        )

    def set_visibility(self, number: int, public: bool, by: int) -> Call | None:
        return self._on_workload(
            number,
            by,
            "POST",
            "visibility",
            {"public": public},
            lambda model, seen, asker, pk: model.set_visibility(seen, asker, pk, public),
        )

    def attach(self, number: int, of: int, by: int) -> Call | None:
        ssh_key = self.one(self.model.ssh_keys, of) or INVENTED
        return self._on_workload(
            number,
            by,
            "POST",
            "ssh-keys",
            {"sshKeyId": ssh_key},
            lambda model, seen, asker, pk: model.attach(seen, asker, pk, ssh_key),
        )

    def detach(self, number: int, of: int, by: int) -> Call | None:
        ssh_key = self.one(self.model.ssh_keys, of) or INVENTED
        return self._on_workload(
            number,
            by,
            "DELETE",
            f"ssh-keys/{ssh_key}",
            None,
            lambda model, seen, asker, pk: model.detach(seen, asker, pk, ssh_key),
        )

    def add_ssh_key(self, org: str, number: int, by: int) -> Call | None:
        asker = self.asker(by, org)
        body = {"name": f"key-{number}", "publicKey": public_key(number)}
        return Call(
            f"{asker} adds key {number} to {org}",
            lambda: self.real.ask("POST", self.real.org_path(org, "ssh-keys/create"), asker, body),
            lambda model, seen: model.add_ssh_key(seen, asker, org, number),
        )

    def delete_ssh_key(self, number: int, by: int) -> Call | None:
        ssh_key = self.one(self.model.ssh_keys, number)
        if ssh_key is None:
            return None
        org = self.model.ssh_keys[ssh_key][0]
        asker = self.asker(by, org)
        path = self.real.org_path(org, f"ssh-keys/{ssh_key}")
        return Call(
            f"{asker} deletes a key of {org}",
            lambda: self.real.ask("DELETE", path, asker),
            lambda model, seen: model.delete_ssh_key(seen, asker, org, ssh_key),
        )

    # Nodes

    def _report(
        self, node: str, guests: Sequence[tuple[str, str, str]], sequence: int, complete: bool
    ) -> Call:
        said = [{"runId": run, "state": state, "message": message} for run, state, message in guests]
        body = {"sequence": sequence, "complete": complete, "guests": said}
        return Call(
            f"{node} reports {body}",
            lambda: self.real.ask("POST", "/v1/agent/reports", node, body),
            lambda model, seen: model.report(seen, node, guests, sequence=sequence, complete=complete),
        )

    def obey(self, number: int) -> Call | None:
        """The agent does what it is asked to, and says so."""
        node = self.one(self.model.nodes, number)
        guests, busy = [], set()
        for run in self.model.open_runs(node):
            if not run.wanted:
                guests.append((run.id, "gone", ""))
            elif not run.units & busy:
                guests.append((run.id, "running", ""))
            busy |= run.units
        return self._report(node, guests, self.model.nodes[node].said + 1, True)

    def say(self, number: int, said: Sequence[tuple[int, str, str]], how: str) -> Call | None:
        """The agent says whatever it says, of its own runs and now and then of another's."""
        node = self.one(self.model.nodes, number)
        runs = [run.id for run in reversed(list(self.model.runs.values())) if run.node == node]
        runs = runs or list(self.model.runs)
        guests = {self.one(runs, of): (state, message) for of, state, message in said if runs}
        last = self.model.nodes[node].said
        sequence = max(1, {"same": last, "older": last - 1}.get(how, last + 1))
        return self._report(node, [(run, *what) for run, what in guests.items()], sequence, how != "partial")

    def inventory(self, number: int, of: int, change: str, how: str) -> Call | None:
        node_id = self.one(self.model.nodes, number)
        node = self.model.nodes[node_id]
        units = copy.deepcopy({n: unit for n, unit in node.units.items() if unit.present})
        picked = self.one(node.units, of)
        unit: Unit = copy.deepcopy(node.units[picked])
        unit.present = True
        if change == "gone":
            units.pop(picked, None)
        elif change == "alone":
            units = {picked: unit}
        elif change == "empty":
            units = {}
        elif change != "none":
            if change == "unhealthy":
                unit.healthy = not unit.healthy
            elif change == "model":
                unit.model = MODELS[1 - MODELS.index(unit.model)]
            elif change == "class":
                usual = "vfio-group" if node.runtime == "qemu" else "device-request"
                unit.klass = "mdev" if unit.klass == usual else usual
            elif change == "unsold":
                unit.sellable = not unit.sellable
            elif change == "size":
                unit.gpus = 3 - unit.gpus
            units[picked] = unit
        units = dict(sorted(units.items()))
        sequence = max(1, {"same": node.sequence, "older": node.sequence - 1}.get(how, node.sequence + 1))
        complete = how != "partial"
        return Call(
            f"{node_id} has {units} ({how})",
            lambda: self.real.inventory(node_id, units, sequence=sequence, complete=complete),
            lambda model, seen: model.inventory(seen, node_id, units, sequence=sequence, complete=complete),
        )

    def set_status(self, number: int, status: str, by: int) -> Call | None:
        return self._on_node(
            number, by, "PATCH", "", {"status": status}, lambda *told: Model.set_status(*told, status)
        )

    def offboard(self, number: int, seconds: int, by: int) -> Call | None:
        body = {"noticeSeconds": seconds}
        return self._on_node(
            number, by, "POST", "/offboard", body, lambda *told: Model.offboard(*told, seconds)
        )

    def _on_node(
        self, number: int, by: int, method: str, rest: str, body: Any, told: Callable[..., None]
    ) -> Call | None:
        node = self.one(self.model.nodes, number)
        asker = self.asker(by, self.model.nodes[node].owner)
        org = self.model.credentials[asker].org
        path = self.real.org_path(org, f"provider/nodes/{node}{rest}")
        return Call(
            f"{asker}: {method} {node}{rest} {body}",
            lambda: self.real.ask(method, path, asker, body),
            lambda model, seen: told(model, seen, asker, org, node),
        )

    def notice(self, number: int, seconds: int) -> Call | None:
        node = self.one(self.model.nodes, number)
        return Call(
            f"{node} will end in {seconds} s",
            lambda: self.real.ask("POST", "/v1/nodes/termination-notice", node, {"noticeSeconds": seconds}),
            lambda model, seen: model.notice(seen, node, seconds),
        )

    # People

    def make_key(self, permissions: Sequence[str], by: int) -> Call | None:
        asker = self.asker(by, "boss")
        org = self.model.credentials[asker].org
        name = f"key {len(self.real.secrets)}"
        body = {"name": name, "permissions": list(permissions)}

        def keep(made: Any) -> None:
            self.real.secrets[name] = made["key"]
            self.real.key_ids[name] = made["id"]

        return Call(
            f"{asker} makes a key with {permissions}",
            lambda: self.real.ask("POST", self.real.org_path(org, "api-keys/create"), asker, body),
            lambda model, seen: model.make_key(seen, asker, org, name, permissions),
            keep,
        )

    def revoke_key(self, number: int, by: int) -> Call | None:
        name = self.one(self.real.key_ids, number)
        if name is None:
            return None
        asker = self.asker(by, "boss")
        org = self.model.credentials[asker].org
        path = self.real.org_path(org, f"api-keys/{self.real.key_ids[name]}")
        return Call(
            f"{asker} revokes {name}",
            lambda: self.real.ask("DELETE", path, asker),
            lambda model, seen: model.revoke_key(seen, asker, org, name),
        )

    def make_role(self, number: int, permissions: Sequence[str], by: int) -> Call | None:
        asker = self.asker(by, "boss")
        body = {"name": f"role {number}", "permissions": list(permissions)}
        return Call(
            f"{asker} makes role {number} with {permissions}",
            lambda: self.real.ask("POST", "/v1/roles", asker, body),
            lambda model, seen: model.make_role(seen, asker, f"role {number}", permissions),
        )

    def change_role(self, number: int, permissions: Sequence[str], by: int) -> Call | None:
        role = self.one(self.model.roles, number)
        if role is None:
            return None
        asker = self.asker(by, "boss")
        return Call(
            f"{asker} changes a role to {permissions}",
            lambda: self.real.ask("PATCH", f"/v1/roles/{role}", asker, {"permissions": list(permissions)}),
            lambda model, seen: model.change_role(seen, asker, role, permissions),
        )

    def delete_role(self, number: int, by: int) -> Call | None:
        role = self.one(self.model.roles, number)
        if role is None:
            return None
        asker = self.asker(by, "boss")
        return Call(
            f"{asker} deletes a role",
            lambda: self.real.ask("DELETE", f"/v1/roles/{role}", asker),
            lambda model, seen: model.delete_role(seen, asker, role),
        )
