"""The whole behind a pooler in transaction mode that has three connections to give."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import settings

from openrelay.demo.asking import Actor, Asking
from tests.chaos.running import Whole, living
from tests.support import pooler
from tests.support.pooler import SERVERS, Pooler

pytestmark = pytest.mark.slow

PREFIX = "openrelay-pooled:"
# What a transaction may leave in the session it was lent, to the harm of who is lent it next. PgBouncer puts
# back the time zone and what else a client says when it connects.
LEFT_BEHIND = """
SELECT 'prepared: ' || statement FROM pg_prepared_statements WHERE name NOT LIKE 'PGBOUNCER_%'
UNION ALL SELECT 'cursor: ' || name FROM pg_cursors WHERE name <> ''
UNION ALL SELECT 'lock: ' || objid FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
UNION ALL SELECT 'listens: ' || channel FROM pg_listening_channels() channel
UNION ALL SELECT 'temporary: ' || relname FROM pg_class WHERE relnamespace = pg_my_temp_schema()
UNION ALL SELECT 'set: ' || name FROM pg_settings WHERE source = 'session' AND name NOT IN
  ('TimeZone', 'DateStyle', 'client_encoding', 'application_name', 'standard_conforming_strings')
"""


class BehindPooler(Whole):
    """OpenRelay as `make up` starts it on services that it is given: the database is the pooler's."""

    def __init__(self, home: Path, pooler: Pooler, *, prepares: bool) -> None:
        super().__init__(home)
        self.pooler = pooler
        self.prepares = prepares

    @property
    def env(self) -> dict[str, str]:
        return {
            **super().env,
            "DATABASE_URL": self.pooler.url,
            **({"DATABASE_PREPARES": "true"} if self.prepares else {}),
            "REDIS_URL": settings.REDIS_URL,
            "REDIS_PREFIX": PREFIX,
            "SECRET_KEY": "a-secret-for-tests-only-" + "0" * 40,
        }


@pytest.fixture(params=[False, True], ids=["preparing nothing", "preparing"])
def whole(request: pytest.FixtureRequest, django_db_setup: None) -> Iterator[BehindPooler]:
    broker = redis.Redis.from_url(settings.REDIS_URL)
    prepares: bool = request.param
    with pooler.running(prepares=prepares) as running:
        try:
            with living(lambda home: BehindPooler(home, running, prepares=prepares)) as whole:
                yield whole
        finally:
            for key in broker.scan_iter(f"{PREFIX}*"):
                broker.delete(key)


class Lives:
    """What the demo's organizations do on its nodes, each method a thread of its own."""

    def __init__(self, demo: dict[str, Any]) -> None:
        self.demo = demo
        self.over = threading.Event()
        self.operator = Actor("operator", "operator", demo)
        self.desk = Actor("managing", "desk", demo)
        self.tenant = Actor("tenant", "tenant", demo)
        self.buyer = Actor("buyer", "buyer", demo)

    def reservation(self, node: str) -> None:
        """Two units reserved, one sold and taken back, both used by whom they are reserved to."""
        server = Asking(print)
        units = server.got("reservations.list_reservation_units", node, client=self.operator.client)
        mine, other = [unit.id for unit in units[:2]]
        model, gpus = units[0].gpu_model_id, units[0].sellable_gpus
        made = server.got(
            "reservations.create_node_reservation",
            node,
            client=self.operator.once(f"reserve-{node}"),
            body=server.model(
                "CreateNodeReservationRequest",
                unit_ids=[mine, other],
                allowed_org_ids=[self.tenant.org],
                managing_org_ids=[self.desk.org],
                ends_at="2127-01-01T00:00:00Z",
            ),
        )

        def act(verb: str, kind: str, **fields: Any) -> Any:
            return server.got(
                f"reservations.{verb}_reservation_units",
                node,
                made.id,
                client=self.desk.client,
                body=server.model(kind, unit_ids=[mine], **fields),
            )

        act("release", "ReservationUnitsRequest")
        spot = self.vm(server, self.buyer, f"spot-{node}", model, gpus, tier="spot")
        self.until(server, self.buyer, spot, "running")
        assert act("reclaim", "ReservationReclaimRequest", dry_run=True).would_terminate == [spot]
        assert act("reclaim", "ReservationReclaimRequest").terminated == [spot]
        assert self.status(server, self.buyer, spot) == "terminated"

        own = [self.vm(server, self.tenant, f"own-{n}-{node}", model, gpus, node_id=node) for n in range(2)]
        for vm in own:
            self.until(server, self.tenant, vm, "running")
        units = server.got("reservations.list_reservation_units", node, client=self.operator.client)
        claimed = {unit.id: unit.claimed_by for unit in units if unit.id in (mine, other)}
        assert set(claimed.values()) == {f"vm:{vm}" for vm in own}
        server.got("vms.stop_vm", own[0], client=self.tenant.client)
        server.got("vms.restart_vm", own[0], client=self.tenant.client)
        self.until(server, self.tenant, own[0], "running")
        server.got(
            "reservations.update_node_reservation",
            node,
            made.id,
            client=self.operator.client,
            body=server.model("UpdateNodeReservationRequest", ends_at=""),
        )
        server.got("reservations.cancel_node_reservation", node, made.id, client=self.operator.client)
        for vm in own:
            server.got("vms.terminate_vm", vm, client=self.tenant.client)

    def pod(self) -> None:
        """A pod, started anew in place, stopped, started again."""
        server = Asking(print)
        body = server.model("CreatePodRequest", image="ghcr.io/acme/job:1", ssh_key_ids=[self.tenant.ssh_key])
        pod = server.got("pods.create_pod", client=self.tenant.once("pod"), body=body).id
        self.until(server, self.tenant, pod, "running")
        server.got("vms.restart_vm", pod, client=self.tenant.client)
        self.until(server, self.tenant, pod, "running")
        server.got("vms.terminate_vm", pod, client=self.tenant.client)

    def reads(self) -> None:
        """What everybody looks at all the time."""
        server = Asking(print)
        while not self.over.wait(0.1):
            for operation in ("catalog.get_gpu_availability", "catalog.get_pricing", "pods.list_pods"):
                server.got(operation, client=self.buyer.client)
            server.got("vms.list_org_vms", self.buyer.org, client=self.buyer.client)
            server.got("audit_events.list_audit_events", client=self.buyer.client)

    def vm(self, server: Asking, who: Actor, name: str, model: str, gpus: int, **fields: Any) -> str:
        """A VM that must be had; asked for with an Idempotency-Key, and once more to see it kept."""
        body = server.model(
            "CreateVmRequest",
            name=name,
            ssh_key_ids=[who.ssh_key],
            gpu_model_id=model,
            gpu_count=gpus,
            **fields,
        )
        twice = [
            server.got("vms.create_vm", who.org, client=who.client, body=body, idempotency_key=name).id
            for _ in range(2)
        ]
        assert twice[0] == twice[1]
        return str(twice[0])

    def status(self, server: Asking, who: Actor, vm: str) -> str:
        return str(server.got("vms.get_vm", vm, client=who.client).status)

    def until(self, server: Asking, who: Actor, vm: str, status: str) -> None:
        server.until(f"{vm} being {status}", lambda: self.status(server, who, vm) == status)

    def all(self) -> None:
        """All of it at once; raises what went wrong in any."""
        calls: list[Callable[[], None]] = [self.pod]
        calls += [lambda node=node: self.reservation(node) for node in self.demo["nodes"]["vm"]]
        with ThreadPoolExecutor(len(calls) + 1) as pool:
            reader = pool.submit(self.reads)
            try:
                for done in [pool.submit(call) for call in calls]:
                    done.result()
            finally:
                self.over.set()
            reader.result()


def test_all_of_it_lives_behind_a_pooler_in_transaction_mode(whole: BehindPooler) -> None:
    assert whole.settings["REDIS_PREFIX"] == PREFIX  # for commands beside it, which queue work too
    Lives(whole.demo).all()
    assert whole.pooler.clients() > SERVERS  # or nothing was handed around
    with whole.pooler.every_session() as sessions:
        assert [session.execute(LEFT_BEHIND).fetchall() for session in sessions] == [[]] * SERVERS
    found = whole.manage("check_invariants")
    assert found.returncode == 0, found.stdout + found.stderr
    whole.stop()
    logs = {path.name: path.read_text() for path in (whole.home / "logs").iterdir()}
    assert {"web.log", "worker.log", "beat.log", "agents.log"} <= logs.keys()
    logs["pgbouncer"] = whole.pooler.log.read_text()
    for name, text in logs.items():
        assert not any(word in text for word in ("Traceback", "ERROR", "CRITICAL")), f"{name}:\n{text}"
