"""InfiniBand fabrics: address pools that nodes share."""

import uuid
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction

from nodes.models import FabricAddress, Node
from nodes.services.fabrics import lease_address, release_addresses, set_fabric, set_node_fabric
from nodes.services.locking import locked
from openrelay.audit.actor import OPERATOR
from openrelay.audit.models import AuditEvent
from openrelay.core.errors import Invalid
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def nodes() -> list[Node]:
    owner = factories.organization()
    return [factories.node(owner, 1), factories.node(owner, 1)]


def fabric(*networks: str) -> Any:
    return set_fabric("ib-1", name="Fabric 1", networks=networks or ["10.40.0.0/30"], actor=OPERATOR)


def take(node: Node, holder: uuid.UUID) -> str | None:
    with locked(node.pk) as locked_node:
        return lease_address(locked_node, holder)


def test_each_holder_has_one_address_and_a_pool_ends(nodes: list[Node]) -> None:
    made = fabric()
    for node in nodes:
        set_node_fabric(node.pk, made, actor=OPERATOR)
    first, second, third = (uuid.uuid4() for _ in range(3))
    assert take(nodes[0], first) == "10.40.0.1"
    assert take(nodes[0], first) == "10.40.0.1"
    assert take(nodes[1], second) == "10.40.0.2"
    assert take(nodes[1], third) is None
    release_addresses([first])
    assert take(nodes[1], third) == "10.40.0.1"


def test_a_node_on_no_fabric_has_no_addresses_to_give(nodes: list[Node]) -> None:
    fabric()
    assert take(nodes[0], uuid.uuid4()) is None


def test_a_holder_that_moves_leaves_its_address_behind(nodes: list[Node]) -> None:
    made = fabric()
    for node in nodes:
        set_node_fabric(node.pk, made, actor=OPERATOR)
    holder = uuid.uuid4()
    take(nodes[0], holder)
    take(nodes[1], holder)
    (row,) = FabricAddress.objects.exclude(holder=None)
    assert row.node_id == nodes[1].pk


def test_a_pool_grows_and_the_same_again_changes_nothing(nodes: list[Node]) -> None:
    fabric()
    made = fabric("10.40.0.0/30", "10.40.1.0/30")
    written = AuditEvent.objects.count()
    fabric("10.40.1.0/30")
    assert made.addresses.count() == 4
    assert AuditEvent.objects.count() == written
    for network in ("x", "10.0.0.0/8"):
        with pytest.raises(Invalid):
            fabric(network)


def test_the_database_keeps_an_address_to_one_holder(nodes: list[Node]) -> None:
    made = fabric()
    set_node_fabric(nodes[0].pk, made, actor=OPERATOR)
    holder = uuid.uuid4()
    take(nodes[0], holder)
    other = FabricAddress.objects.get(holder=None)
    with pytest.raises(IntegrityError), transaction.atomic():
        FabricAddress.objects.filter(pk=other.pk).update(holder=holder)


def test_operators_set_fabrics_at_the_server(nodes: list[Node], capsys: pytest.CaptureFixture[str]) -> None:
    call_command("set_fabric", "ib-1", "--network", "10.40.0.0/30", "--node", str(nodes[0].pk))
    assert capsys.readouterr().out == "ib-1: 2 addresses, 2 free, 1 nodes\n"
    call_command("set_fabric", "ib-1", "--name", "Oslo")
    # Adding a network keeps the name. An unknown node id makes the command change nothing.
    call_command("set_fabric", "ib-1", "--network", "10.40.1.0/30")
    assert capsys.readouterr().out.splitlines()[-1] == "Oslo: 4 addresses, 4 free, 1 nodes"
    invented = "0198c0de-0000-7000-8000-000000000000"
    for wrong in (["--network", "x"], ["--node", "x"], ["--node", str(nodes[1].pk), "--node", invented]):
        with pytest.raises(CommandError):
            call_command("set_fabric", "ib-1", "--network", "10.40.2.0/30", *wrong)
    assert Node.objects.filter(fabric__slug="ib-1").count() == 1
    assert FabricAddress.objects.count() == 4
