"""Creating VMs over HTTP against a bare view that writes the same rows, and against that SQL by pgbench."""

import itertools
import json
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

from bench.fleet import grow
from bench.load import Result, request, run, say
from openrelay.embedded import binaries

SIZES = (1_000, 10_000)
CLIENTS = 8


def measure(ground: Any, *, sizes: tuple[int, ...], rounds: int, seconds: float) -> None:
    """Create VMs of one GPU at each size of the fleet, in turn with the bare view and pgbench."""
    from django.db import connection

    from compute.models import Workload
    from compute.services.billing.prices import set_price
    from compute.services.fleet import refresh
    from nodes.models import GpuModel, GpuUnit
    from openrelay.audit.services.record import OPERATOR
    from openrelay.identity.models import Organization
    from openrelay.identity.services.keys import create_server_key
    from reservations.services.fleet_loading import load

    units = [
        {
            "address": f"0000:{bus:02x}:00.0",
            "allocClass": "vfio-group",
            "gpus": [{"address": f"0000:{bus:02x}:00.0", "model": "bench-gpu"}],
        }
        for bus in range(0x10, 0x18)
    ]
    host = {"cpuCores": 128, "ramMb": 1048576, "diskTotalGb": 16000, "diskFreeGb": 16000}
    inventory = {"units": units, "host": host}
    pool, apart = load(
        {
            "nodes": [
                {"hostname": name, "organization": "owner", "inventory": inventory}
                for name in ("pool", "apart")
            ]
        },
        actor=OPERATOR,
    ).nodes[-2:]
    for tier in ("community", "spot"):
        set_price(
            actor=OPERATOR,
            gpu_model=GpuModel.objects.get(slug="bench-gpu"),
            tier=tier,
            cents_per_gpu_hour=200,
        )
    tenant = Organization.objects.get(slug="tenant")
    _, token = create_server_key(
        actor=OPERATOR,
        organization_id=tenant.pk,
        name="create",
        permissions=["compute.write", "sshkey.write"],
    )
    key = _post(ground, token, f"/v1/orgs/{tenant.pk}/ssh-keys/create", _KEY)["id"]
    # The bare view has nodes to itself, which take no work from the pool.
    grow(connection, apart.pk, 1, 9_000 if max(sizes) >= 1_000 else 1_000)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE nodes_nodeheartbeat SET seen_at = now() + interval '1 day'")
        cursor.execute(
            "UPDATE nodes_node SET owner_hold = 'maintenance' "
            "WHERE hostname LIKE 'apart%' OR hostname LIKE 'bench-%'"
        )
    spare = GpuUnit.objects.filter(node__hostname__startswith="apart-").order_by("pk")
    pairs = [(str(unit), str(node)) for unit, node in spare.values_list("pk", "node_id")]
    next_pair = itertools.count()

    path = f"/v1/orgs/{tenant.pk}/vms/create"
    body = {"name": "vm", "sshKeyIds": [key], "gpuCount": 1, "diskSizeGb": 20}
    created = request("POST", ground.url, path, json.dumps(body).encode(), token)

    def at(path: str) -> Callable[[int, int], bytes]:
        def make(_client: int, _number: int) -> bytes:
            unit, node = pairs[next(next_pair)]
            return request(
                "POST", ground.url, path, json.dumps({**body, "unitId": unit, "nodeId": node}).encode()
            )

        return make

    print(f"\n  {'ratio of throughput':58} {'min':>5} {'median':>6} {'max':>6}")
    here = 1
    for size in sizes:
        say(f"create: growing the fleet to {size:,} nodes")
        grow(connection, pool.pk, here, size)
        with connection.cursor() as cursor:
            cursor.execute("UPDATE nodes_nodeheartbeat SET seen_at = now() + interval '1 day'")
        here = size
        refresh.refresh()
        run(ground.url, CLIENTS, 1.0, lambda _client, _number: created)  # warm
        with connection.cursor() as cursor:
            # As autovacuum does in the first minute of tables that were empty, for both contenders.
            cursor.execute("ANALYZE")
        template = Workload.objects.latest("created_at").pk
        ours: list[Result] = []
        bare: list[Result] = []
        locking: list[Result] = []
        by_sql: list[float] = []
        contenders: list[tuple[list[Result], Callable[[int, int], bytes]]] = [
            (ours, lambda _client, _number: created),
            (bare, at("/v1/bench/vms")),
            (locking, at("/v1/bench/locked-vms")),
        ]
        for number in range(rounds):
            say(f"create at {size:,} nodes: round {number + 1} of {rounds}")
            for results, make in contenders if number % 2 else contenders[::-1]:
                # What the others wrote on nodes of their own, thousands in a moment, is taken in first.
                refresh.refresh()
                run(ground.url, CLIENTS, 0.3, make)
                results.append(run(ground.url, CLIENTS, seconds, make))
            by_sql.append(_pgbench(ground, str(template), pairs, next_pair, seconds))
        for what, others, goal in (
            ("bare view, the same rows", [result.rate for result in bare], "   goal 0.6"),
            ("bare view, lock and reads too", [result.rate for result in locking], ""),
            ("the SQL by pgbench", by_sql, ""),
        ):
            ratios = [mine.rate / other for mine, other in zip(ours, others, strict=True)]
            label = f"{size:,} nodes, create a VM / {what}"
            middle = statistics.median(ratios)
            print(f"  {label:58} {min(ratios):5.2f} {middle:6.2f} {max(ratios):6.2f}{goal}")
        print(
            f"    create {statistics.median(r.rate for r in ours):.0f} a second, "
            f"{statistics.median(r.median for r in ours):.1f} ms; "
            f"bare view {statistics.median(r.rate for r in bare):.0f}, "
            f"with lock and reads {statistics.median(r.rate for r in locking):.0f}; "
            f"pgbench {statistics.median(by_sql):.0f}"
        )


_KEY = {
    "name": "bench",
    "publicKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1yNLxDGnQ1uSVnUXuIcVwVCUwrjnKoNcxuFHM0dA4n",
}


def _post(ground: Any, token: str, path: str, body: dict[str, Any]) -> Any:
    import urllib.request

    asked = urllib.request.Request(
        ground.url + path,
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(asked) as answer:
        return json.load(answer)


def _pgbench(
    ground: Any, template: str, pairs: list[tuple[str, str]], numbers: "itertools.count[int]", seconds: float
) -> float:
    """Transactions a second of the bare statement by pgbench, on units of their own."""
    from django.db import connection

    from bench.bare_vm import statement

    first = next(numbers)
    most = 1_600
    for _ in range(most - 1):
        next(numbers)
    setup = (
        "DROP TABLE IF EXISTS bench_pairs; "
        "CREATE TABLE bench_pairs (n serial PRIMARY KEY, unit uuid, node uuid);"
        "DROP SEQUENCE IF EXISTS bench_next; CREATE SEQUENCE bench_next;"
    )
    with connection.cursor() as cursor:
        cursor.execute(setup)
        cursor.executemany(
            "INSERT INTO bench_pairs (unit, node) VALUES (%s, %s)", pairs[first : first + most]
        )
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        # What the view draws in Python, this draws from a table: the statement stays one.
        names = ("unit", "node", "workload", "run", "event")
        text = " ".join(statement(template).split()) % {name: f"(SELECT {name} FROM pair)" for name in names}
        drawn = (
            "pair AS MATERIALIZED (SELECT unit, node, gen_random_uuid() AS workload, "
            "gen_random_uuid() AS run, gen_random_uuid() AS event FROM bench_pairs "
            "WHERE n = (SELECT nextval('bench_next')))"
        )
        script.write(f"WITH {drawn}, {text.removeprefix('WITH ')};\n")
        script.flush()
        done = subprocess.run(
            [str(binaries.postgres("pgbench")), ground.database_url, "--no-vacuum", "--client", str(CLIENTS)]
            + ["--jobs", "2", "--transactions", str(most // CLIENTS), "--file", script.name],
            check=False,
            capture_output=True,
            text=True,
        )
    line = next((line for line in done.stdout.splitlines() if line.startswith("tps")), "")
    if done.returncode or not line or "aborted" in done.stdout:
        raise RuntimeError(f"pgbench: {done.stdout}{done.stderr}")
    return float(line.split()[2])
