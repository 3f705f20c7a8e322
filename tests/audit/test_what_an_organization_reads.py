"""An organization's log tells it what the API would, and nothing that identifies others.

The events are made by the services, in a story with every party: the node's owner, a tenant with a
reservation that preempts, an organization that manages it, a buyer whose spot VMs are reclaimed and
preempted, operators, and one that has nothing to do with it.
"""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from rest_framework.test import APIClient

from compute.models import Run, Workload
from compute.services.lifecycle import overdue_starts, overdue_teardowns
from nodes.models import Gpu, GpuUnit, InventoryReport, Node
from nodes.services.enrolment import issue_credential
from openrelay.audit.actor import OPERATOR, Actor
from openrelay.audit.kinds import KINDS, Kind
from openrelay.audit.models import AuditEvent
from openrelay.audit.services.record import SYSTEM, record
from openrelay.identity.models import ApiKey, Organization
from openrelay.identity.services import memberships, organizations, sessions
from reservations import tasks
from tests import factories
from tests.compute.conftest import World, run_of, world
from tests.support.travel import Clock

__all__ = ["world"]

pytestmark = pytest.mark.django_db

PARTIES = ("provider", "tenant", "manager", "buyer", "uninvolved", "platform")
# Events of the story that are about more than one party, or are in the log of another than who acted.
CROSSING = {
    *(
        "vm.created",
        "vm.terminated",
        "vm.restarted",
        "vm.running",
        "vm.deploying",
        "vm.stopped",
        "vm.rebooted",
    ),
    *("vm.node_leaving", "vm.deploy_overdue", "vm.teardown_overdue", "vm.occupancy_overridden"),
    *("vm.guest_returned", "reservation.created", "reservation.amended"),
    *("reservation.cancelled", "reservation.units_released", "reservation.units_reclaimed"),
    *("reservation.needs_review", "reservation.reaffirmed", "node.spot_reclaimed", "node.leaving"),
    *("node.topology_changed", "node.report_flagged", "node.host_changed", "node.credential_issued"),
    *("unit.changed", "request.refused", "member.added", "member.role_changed", "member.removed"),
    *("session.created", "org.switches_changed"),
}


class Story(World):
    """Everybody calls from an address of their own, and names their requests."""

    others: dict[str, Organization]

    def org(self, name: str) -> Organization:
        return self.others.get(name) or getattr(self, name)

    def enter(self) -> None:
        """Give everybody a client."""
        self.others = {
            "manager": factories.organization("Manager"),
            "uninvolved": factories.organization("Uninvolved"),
            "platform": factories.platform(),
        }
        self.leaving = factories.node(self.provider, 2, node_class="interruptible", notice_seconds=600)
        for number, name in enumerate(PARTIES):
            org = self.org(name)
            client = APIClient()
            client.credentials(
                HTTP_AUTHORIZATION=f"Bearer {factories.api_key(org)}",
                REMOTE_ADDR=f"198.51.100.{number + 10}",
                HTTP_X_REQUEST_ID=f"request-of-{name}",
            )
            self.clients[org.pk] = client
        for number, node in enumerate((self.node, self.leaving)):
            client = APIClient()
            client.credentials(
                HTTP_AUTHORIZATION=f"Bearer {factories.credential(node)}",
                REMOTE_ADDR=f"203.0.113.{number + 10}",
                HTTP_X_REQUEST_ID=f"request-of-agent-{number}",
            )
            self.clients[node.pk] = client

    def call(self, name: str, method: str, path: str, **body: Any) -> Any:
        """One request as a party, which must be served."""
        answer = getattr(self.client(self.org(name)), method)(path, body, format="json")
        assert answer.status_code in (200, 204), answer.content
        return answer.json() if answer.content else None

    def live(self, clock: Clock) -> None:
        """All that happens."""
        units = [factories.address(number) for number in range(8)]
        base = f"/v1/nodes/{self.node.pk}/reservations"
        made = self.call(
            *("platform", "post", base),
            unitIds=units[:3],
            allowedOrgIds=[str(self.tenant.pk)],
            managingOrgIds=[str(self.org("manager").pk)],
            reason="spring training",
        )
        own = f"{base}/{made['id']}"
        self.call("manager", "post", f"{own}/release", unitIds=units[:3], reason="idle")
        # On the node that fits best, which is to leave.
        self.running(self.buyer)
        for _ in range(3):
            self.running(self.buyer, tier="spot")
        preemptor = self.vm(self.tenant, nodeId=str(self.node.pk), gpuCount=2)
        self.call("manager", "post", f"{own}/reclaim", unitIds=units[:3], reason="needed back")
        self.call("manager", "post", f"{own}/release", unitIds=units[:3])
        for guest in Workload.objects.filter(status="terminated"):
            self.says((guest, "gone"), node=guest.node)
        self.says((preemptor, "running"))
        spot = self.running(self.buyer, tier="spot")
        path = f"/v1/orgs/{self.provider.pk}/provider/nodes/{self.node.pk}/reclaim-spot"
        self.call("provider", "post", path, reason="maintenance")
        self.says((spot, "gone"))
        self.says((spot, "running"))
        bought = self.running(self.buyer, gpuCount=4)
        for verb in ("reboot", "stop"):
            self.call("buyer", "post", f"/v1/vms/{bought.pk}/{verb}")
        self.says((bought, "gone"))
        self.call("buyer", "post", f"/v1/vms/{bought.pk}/restart")
        self.refuse(own)
        self.run_late(clock, bought)
        self.change_hardware(own)
        self.leave()
        self.manage_people()
        self.call("platform", "post", f"{own}/cancel")

    def refuse(self, own: str) -> None:
        """Attempts at what is not for those who try."""
        body = {"unitIds": [factories.address(0)]}
        assert (
            self.client(self.org("uninvolved")).post(f"{own}/reclaim", body, format="json").status_code == 404
        )
        assert self.ask(self.buyer, nodeId=str(self.node.pk)).status_code == 400

    def run_late(self, clock: Clock, deploying: Workload) -> None:
        """A guest that does not come up, one that does not go, and an operator's word for it."""
        clock.advance(3600)
        factories.online(self.node, self.leaving)
        for run_id in overdue_starts.stuck_ids():
            overdue_starts.report_stuck(run_id)
        self.says((deploying, "running"))
        self.call("buyer", "post", f"/v1/vms/{deploying.pk}/terminate")
        clock.advance(3600)
        factories.online(self.node, self.leaving)
        for run_id in overdue_teardowns.overdue_ids():
            overdue_teardowns.report_overdue(run_id)
        overdue_teardowns.close_occupancy_by_override(
            caller=factories.operator(), run_id=run_of(deploying), reason="seen to be off"
        )

    def change_hardware(self, own: str) -> None:
        """A card fails, one goes and comes back, and a report is not believed."""
        failed = factories.unit_report(7)
        failed["gpus"][0] |= {"healthy": False, "failure": "fell off the bus"}
        reports = [factories.unit_report(number) for number in range(7)]
        factories.inventory(self.node, [*reports, failed])
        factories.inventory(self.node, reports)
        tasks.announce_all_due()
        self.call("platform", "patch", own, reaffirm=True)
        self.call("platform", "patch", own, allowedOrgIds=[str(self.tenant.pk), str(self.buyer.pk)])
        self.says(complete=False)
        factories.inventory(
            self.node, reports, host={"cpuCores": 96, "ramMb": 1_000_000, "diskTotalGb": 9000}
        )

    def leave(self) -> None:
        """A node of the owner that has a guest announces its end."""
        self.call(
            "provider",
            "post",
            f"/v1/orgs/{self.provider.pk}/provider/nodes/{self.leaving.pk}/offboard",
            noticeSeconds=900,
        )

        issue_credential(actor=OPERATOR, node=self.leaving)

    def manage_people(self) -> None:
        """An operator adds, demotes and removes somebody of the buyer."""
        person = factories.user(self.buyer, "owner")
        other = factories.user(factories.organization("Elsewhere"))
        operator = factories.operator().actor
        where = {"actor": operator, "user_id": other.pk, "organization_id": self.buyer.pk}
        memberships.add_member(**where, role="admin")
        memberships.change_role(**where, role="viewer", reason="asked for")
        memberships.remove_member(**where, reason="left")
        sessions.mint_session(actor=OPERATOR, user_id=person.pk, organization_id=self.buyer.pk)
        organizations.set_switches(actor=operator, organization_id=self.buyer.pk, stop_enabled=False)

    def read(self, name: str, **query: str) -> list[dict[str, Any]]:
        """The whole log as a party reads it."""
        items: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        while True:
            page = (
                self.client(self.org(name)).get("/v1/audit-events", {"limit": 100, **query, **cursor}).json()
            )
            items += page["items"]
            if "nextCursor" not in page:
                return items
            cursor = {"cursor": page["nextCursor"]}

    def identities(self) -> Iterator[tuple[str, str]]:
        """Whatever identifies somebody or something, each with whose it is."""
        names = {self.org(name).pk: name for name in PARTIES}
        for number, (pk, name) in enumerate((self.org(name).pk, name) for name in PARTIES):
            yield name, str(pk)
            yield name, f"198.51.100.{number + 10}"
            yield name, f"request-of-{name}"
        for key in ApiKey.objects.all():
            yield names.get(key.organization_id, "others"), str(key.pk)
        for made in Workload.objects.all():
            yield names[made.organization_id], str(made.pk)
        for run in Run.objects.all():
            yield "nobody", str(run.pk)
        for report in InventoryReport.objects.all():
            yield "nobody", str(report.pk)
        for number, node in enumerate(Node.objects.order_by("created_at")):
            yield "provider", str(node.pk)
            yield "provider", f"203.0.113.{number + 10}"
            yield "provider", f"request-of-agent-{number}"
        for unit in GpuUnit.objects.all():
            yield "provider", unit.address
            yield "provider", str(unit.pk)
        for gpu in Gpu.objects.all():
            yield "provider", gpu.address


@pytest.fixture
def story(world: World, clock: Clock) -> Story:
    told = Story(node=world.node, provider=world.provider, tenant=world.tenant, buyer=world.buyer)
    told.enter()
    told.live(clock)
    return told


def contract_parties(story: Story) -> set[str]:
    """Those that the API shows a node's owner of the contracts on it."""
    return {str(story.org(name).pk) for name in ("tenant", "manager", "buyer", "platform")}


def test_nobody_reads_what_identifies_others(story: Story) -> None:
    produced = set(AuditEvent.objects.values_list("event", flat=True))
    assert produced >= CROSSING, CROSSING - produced
    secrets = set(story.identities())
    for name in PARTIES:
        if name == "platform":
            continue
        theirs = {value for whose, value in secrets if whose != name} - {
            value for whose, value in secrets if whose == name
        }
        for item in story.read(name):
            text = json.dumps(item)
            known = set()
            if item["event"].startswith("reservation.") and name == "provider":
                known = contract_parties(story)
            if item["event"] == "request.refused":
                known = {item["targetId"]}  # what it named itself
            leaked = {value for value in theirs - known if value in text}
            assert not leaked, (name, item, leaked)


def test_each_party_reads_its_part_and_who_it_was_by(story: Story) -> None:
    def by(name: str, event: str) -> set[str]:
        return {item["actor"].partition(":")[0] for item in story.read(name) if item["event"] == event}

    assert by("buyer", "vm.terminated") == {"capacity-owner", "key"}
    assert by("buyer", "vm.created") == {"key"}
    assert by("buyer", "vm.running") == {"platform"}
    assert by("buyer", "vm.deploy_overdue") == {"system"}
    assert by("buyer", "member.removed") == {"platform"}
    assert by("tenant", "vm.created") == {"key"}
    assert by("provider", "reservation.created") == {"platform"}
    assert by("provider", "reservation.units_reclaimed") == {"capacity-owner"}
    assert by("provider", "node.spot_reclaimed") == {"key"}
    assert by("provider", "node.report_flagged") == {"node"}
    assert {item["event"] for item in story.read("uninvolved")} == {"request.refused"}
    assert {item["event"] for item in story.read("manager")} == set()


def test_the_reason_is_shown_to_whoever_it_befell(story: Story) -> None:
    reasons = {item.get("reason") for item in story.read("buyer") if item["event"] == "vm.terminated"}
    assert {"needed back", "maintenance"} <= reasons
    assert "asked for" in {item.get("reason") for item in story.read("buyer")}


def test_what_one_request_changed_shares_the_servers_own_id(story: Story) -> None:
    events = [item for item in story.read("platform") if item.get("requestId") == "request-of-provider"]
    reclaimed = next(item for item in events if item["event"] == "node.spot_reclaimed")
    evicted = [item for item in events if item["event"] == "vm.terminated"]
    assert evicted
    assert {item["serverRequestId"] for item in evicted} == {reclaimed["serverRequestId"]}
    seen = [item for item in story.read("buyer") if item["id"] in {item["id"] for item in evicted}]
    assert {item["serverRequestId"] for item in seen} == {reclaimed["serverRequestId"]}
    assert not any("requestId" in item or "sourceIp" in item for item in seen)


def test_an_owner_reads_of_its_own_node_and_its_own_requests(story: Story) -> None:
    items = story.read("provider")
    changed = next(item for item in items if item["event"] == "unit.changed")
    assert json.loads(changed["after"])["unitId"] == factories.address(7)
    assert json.loads(changed["after"])["nodeId"] == str(story.node.pk)
    overdue = next(item for item in items if item["event"] == "vm.teardown_overdue")
    assert (overdue["targetType"], overdue["targetId"]) == ("node", str(story.node.pk))
    reclaimed = next(item for item in items if item["event"] == "node.spot_reclaimed")
    assert (reclaimed["sourceIp"], reclaimed["requestId"]) == ("198.51.100.10", "request-of-provider")
    assert json.loads(reclaimed["after"]) == {"terminatedCount": 1}


def test_operators_read_everything(story: Story) -> None:
    items = story.read("platform")
    assert len(items) == AuditEvent.objects.count()
    for item, row in zip(items, AuditEvent.objects.all(), strict=True):
        assert (item["actor"], item["targetId"]) == (row.actor, row.target_id)
        assert json.loads(item.get("after", "null")) == row.after


def test_a_filter_finds_nothing_by_what_is_hidden(story: Story) -> None:
    """Whatever identifies others finds as much as something invented: nothing."""
    for name in ("buyer", "tenant", "provider"):
        own = {value for whose, value in story.identities() if whose == name}
        shown = {item["targetId"] for item in story.read(name)}
        for _, value in story.identities():
            if value in own | shown:
                continue
            assert story.read(name, targetId=value) == []
            for kind in ("key", "node", "user"):
                assert story.read(name, actor=f"{kind}:{value}") == []
    on_node = story.read("provider", targetId=str(story.node.pk))
    assert {"vm.teardown_overdue", "node.spot_reclaimed"} <= {item["event"] for item in on_node}
    assert {item["actor"] for item in story.read("buyer", actor="capacity-owner")} == {"capacity-owner"}
    assert story.read("buyer", actor="capacity-owner")


def test_what_nobody_declared_is_shown_to_operators_alone(world: World) -> None:
    org = world.buyer
    record(
        *(SYSTEM, "thing.undeclared"),
        target_type="thing",
        target_id="t",
        org_id=org.pk,
        before={"secret": 1},
        after={"secret": 2},
    )
    record(
        SYSTEM, "vm.created", target_type="vm", target_id="v", org_id=org.pk, after={"new": 1, "name": "n"}
    )
    items = world.client(org).get("/v1/audit-events").json()["items"]
    assert [item.get("after") for item in items] == ['{"name":"n"}', None]
    assert "secret" not in json.dumps(items)


def test_a_kind_shows_what_it_declares_and_no_more() -> None:
    kind = Kind(frozenset({"name"}), frozenset({"gone"}))
    assert kind.shown({"name": "n", "gone": ["a", "b"], "other": 1}) == {"name": "n", "goneCount": 2}
    assert kind.shown({"other": 1}) is None
    assert kind.shown(None) is None
    assert kind.shown("text") is None


@pytest.mark.parametrize(
    ("actor", "shown"),
    [
        (Actor("key:1", organization_id="own"), "key:1"),  # type: ignore[arg-type]
        (Actor("key:1", organization_id="other"), "capacity-owner"),  # type: ignore[arg-type]
        (Actor("user:1", organization_id="ops", is_platform=True), "platform"),  # type: ignore[arg-type]
        (Actor("node:1", organization_id="own"), "node:1"),  # type: ignore[arg-type]
        (Actor("node:1", organization_id="other"), "platform"),  # type: ignore[arg-type]
        (OPERATOR, "platform"),
        (SYSTEM, "system"),
    ],
)
def test_a_party_is_named_by_what_it_is_to_the_reader(actor: Actor, shown: str) -> None:
    assert actor.name_for("own") == shown  # type: ignore[arg-type]


# Calls that write an event, and where they have its name.
WRITERS = {
    "record",
    "record_repeated",
    "AuditEntry",
    "set_status_reason",
    "move",
    "move_all",
    "_record",
    "_note",
    "_event",
}
# Names that are put together: where, and what they can be.
PUT_TOGETHER = {
    "compute/services/lifecycle/transitions.py": {
        f"vm.{state}" for state in ("deploying", "running", "stopped", "failed", "interrupted", "terminated")
    },
    "nodes/services/applications.py": {"provider.approved", "provider.rejected"},
    "nodes/services/catalog.py": {"gpu_model.set", "location.set"},
    "reservations/models/announcement.py": {
        "reservation.activated",
        "reservation.expired",
        "reservation.needs_review",
    },
    "reservations/services/amending.py": {"reservation.reaffirmed", "reservation.amended"},
    "compute/services/billing/balances.py": {"balance.low", "balance.depleted", "balance.restored"},
}
_NAME = re.compile(r"[a-z_]+\.[a-z_]+")


def written_kinds() -> dict[str, str]:
    """Every kind of event that the code writes, with the file that does."""
    found: dict[str, str] = {}
    for folder in ("openrelay", "nodes", "compute", "reservations"):
        for path in sorted((Path(settings.BASE_DIR) / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                name = (
                    getattr(node.func, "id", getattr(node.func, "attr", ""))
                    if isinstance(node, ast.Call)
                    else ""
                )
                if name not in WRITERS:
                    continue
                values = [*node.args, *(word.value for word in node.keywords if word.arg == "event")]
                for part in (part for value in values for part in ast.walk(value)):
                    text = part.value if isinstance(part, ast.Constant) else None
                    if isinstance(text, str) and _NAME.fullmatch(text):
                        found[text] = str(path)
    return found | {kind: path for path, kinds in PUT_TOGETHER.items() for kind in kinds}


def test_every_kind_that_the_code_writes_is_declared_and_no_other() -> None:
    written = written_kinds()
    assert set(written) - KINDS.keys() == set(), "declare what an organization reads of them"
    assert KINDS.keys() - set(written) == set(), "nothing writes these any more"
