"""A field that names a thing of others is answered as one that names nothing: by as many queries, too."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from compute.models import Workload
from openrelay.audit.models import AuditRepeat
from openrelay.identity.services.callers import forget_keys
from tests import factories
from tests.compute.conftest import World

pytestmark = pytest.mark.django_db

INVENTED = "0198c0de-0000-7000-8000-000000000000"
Ask = Callable[[World, Workload, str], Any]


def create(**body: Any) -> Ask:
    return lambda world, own, named: world.ask(world.buyer, nodeId=named, **body)


def pod(world: World, own: Workload, named: str) -> Any:
    body = {"name": "pod", "imageRef": "docker.io/library/nginx:1", "gpuCount": 1, "nodeId": named}
    return world.client(world.buyer).post(f"/v1/orgs/{world.buyer.pk}/pods/create", body)


def on_own_vm(method: str, rest: str, **body: str) -> Ask:
    def ask(world: World, own: Workload, named: str) -> Any:
        filled = {name: value.format(named=named) for name, value in body.items()}
        path = f"/v1/vms/{own.pk}/{rest.format(named=named)}"
        return getattr(world.client(world.buyer), method)(path, filled or None)

    return ask


def in_own_org(method: str, rest: str) -> Ask:
    return lambda world, own, named: getattr(world.client(world.buyer), method)(
        f"/v1/orgs/{world.buyer.pk}/{rest.format(named=named)}"
    )


def on_vm(method: str, rest: str) -> Ask:
    return lambda world, own, named: getattr(world.client(world.buyer), method)(
        f"/v1/vms/{rest.format(named=named)}"
    )


# What names a node, a VM, an SSH key or a template of others, by the kind of thing.
FIELDS: dict[str, tuple[str, Ask]] = {
    "create nodeId": ("node", create()),
    "create nodeId of many GPUs": ("node", create(gpuCount=4)),
    "create nodeId without GPUs": ("node", create(gpuCount=None, resourceSize="cpu-small")),
    "create nodeId spot": ("node", create(tier="spot")),
    "pod nodeId": ("node", pod),
    "create sshKeyIds": ("key", lambda world, own, named: world.ask(world.buyer, sshKeyIds=[named])),
    "attach sshKeyId": ("key", on_own_vm("post", "ssh-keys", sshKeyId="{named}")),
    "detach": ("key", on_own_vm("delete", "ssh-keys/{named}")),
    "delete key": ("key", in_own_org("delete", "ssh-keys/{named}")),
    "get vm": ("vm", on_vm("get", "{named}/detail")),
    "stop vm": ("vm", on_vm("post", "{named}/stop")),
    "terminate vm": ("vm", on_vm("post", "{named}/terminate")),
    "create templateId": ("vm", lambda world, own, named: world.ask(world.buyer, templateId=named)),
    "reclaim-spot": ("node", in_own_org("post", "provider/nodes/{named}/reclaim-spot")),
    "provider node": ("node", in_own_org("get", "provider/nodes/{named}")),
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_thing_of_others_is_told_from_nothing_by_no_sign(world: World, field: str) -> None:
    kind, ask = FIELDS[field]
    theirs = {
        "node": world.node.pk,
        "key": factories.ssh_key(world.tenant).pk,
        "vm": world.running(world.tenant).pk,
    }
    world.reserve(7)  # for somebody else
    own = world.running(world.buyer)
    told = []
    for named in (INVENTED, str(theirs[kind]), INVENTED, str(theirs[kind])):
        forget_keys()
        AuditRepeat.objects.all().delete()
        with CaptureQueriesContext(connection) as queries:
            answer = ask(world, own, named)
        headers = {name: value for name, value in answer.items() if name not in ("Date", "X-Request-Id")}
        assert answer.status_code in (400, 403, 404), answer.content
        told.append((answer.status_code, answer.content.replace(named.encode(), b""), headers, len(queries)))
    # The first may have filled what a process remembers.
    assert told[1] == told[2] == told[3]
