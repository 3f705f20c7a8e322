"""`make bench`: what the promise costs, as ratios of throughput measured in one run on the embedded stack.

Each part has a server and a database of its own:

1. reservations of four units over HTTP against a bare view that does the same inserts in one statement, and
   against that statement by pgbench;
2. an authenticated constant answer against an anonymous one;
3. a VM of one GPU over HTTP, at 1,000 and 10,000 nodes, against a bare view that writes the same rows in one
   statement, against one that also locks the node and reads what is decided on, and against the statement by
   pgbench;
4. availability against the authenticated constant, as ratios of median latency, and the web workers' memory:
   at 1,000 nodes of 8 units, and with `--big` at 10,000 and 100,000 too.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bench import availability, create, stack
from bench.load import Result, request, run, say
from openrelay.embedded import binaries

PARTS = ("reserve", "create", "availability")
CLIENTS = 8
MODEL = "bench-gpu"


@dataclass(frozen=True)
class Ground:
    """What there is to reserve: a node for each client of each contender."""

    url: str
    database_url: str
    token: str
    tenant: str
    platform: str
    owner: str
    model: str
    nodes: list[str]
    addresses: list[list[str]]
    units: list[list[str]]


def prepare(env: dict[str, str]) -> Ground:
    """Make organizations, a key and three nodes a client, by the services that always make them."""
    os.environ.update(env, DJANGO_SETTINGS_MODULE="bench.settings")
    import django

    django.setup()
    from nodes.models import GpuModel, GpuUnit
    from openrelay.audit.services.record import OPERATOR
    from openrelay.identity.services.keys import create_server_key
    from openrelay.identity.services.organizations import create_organization
    from reservations.services.fleet_loading import load

    platform = create_organization(actor=OPERATOR, name="Ops", slug="ops", is_platform_ops=True)
    tenant = create_organization(actor=OPERATOR, name="Tenant", slug="tenant")
    owner = create_organization(actor=OPERATOR, name="Owner", slug="owner", is_provider=True)
    units = [
        {
            "address": f"0000:{bus:02x}:00.0",
            "allocClass": "vfio-group",
            "gpus": [{"address": f"0000:{bus:02x}:00.0", "model": MODEL}],
        }
        for bus in range(0x10, 0x18)
    ]
    fleet = {
        "gpuModels": [{"slug": MODEL, "name": "Bench GPU", "manufacturer": "NVIDIA", "vramGb": 80}],
        "nodes": [
            {"hostname": f"bench-{number:03}", "organization": "owner", "inventory": {"units": units}}
            for number in range(3 * CLIENTS)
        ],
    }
    nodes = load(fleet, actor=OPERATOR).nodes
    _, token = create_server_key(
        actor=OPERATOR, organization_id=platform.pk, name="bench", permissions=["reservation.manage"]
    )
    rows = [list(GpuUnit.objects.filter(node=node).order_by("address")[:4]) for node in nodes]
    return Ground(
        url=env["BASE_URL"],
        database_url=env["DATABASE_URL"],
        token=token,
        tenant=str(tenant.pk),
        platform=str(platform.pk),
        owner=str(owner.pk),
        model=str(GpuModel.objects.get(slug=MODEL).pk),
        nodes=[str(node.pk) for node in nodes],
        addresses=[[unit.address for unit in four] for four in rows],
        units=[[str(unit.pk) for unit in four] for four in rows],
    )


class Terms:
    """Terms of an hour, one after the other, so that no two reservations of a node overlap."""

    def __init__(self) -> None:
        self.base = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
        self.numbers = [itertools.count() for _ in range(CLIENTS)]

    def next(self, client: int) -> tuple[str, str]:
        """The next term of that client's node, as start and end."""
        start = self.base + timedelta(hours=next(self.numbers[client]))
        return start.isoformat(), (start + timedelta(hours=1)).isoformat()


def promised(ground: Ground) -> Callable[[int, int], bytes]:
    """Requests to OpenRelay's own operation."""
    terms = Terms()

    def make(client: int, _number: int) -> bytes:
        start, end = terms.next(client)
        body = {
            "unitIds": ground.addresses[client],
            "allowedOrgIds": [ground.tenant],
            "startsAt": start,
            "endsAt": end,
            "reason": "bench",
        }
        path = f"/v1/nodes/{ground.nodes[client]}/reservations"
        return request("POST", ground.url, path, json.dumps(body).encode(), ground.token)

    return make


def bare(ground: Ground) -> Callable[[int, int], bytes]:
    """Requests to the bare view."""
    terms = Terms()

    def make(client: int, _number: int) -> bytes:
        start, end = terms.next(client)
        node = CLIENTS + client
        body = {
            "nodeId": ground.nodes[node],
            "unitIds": ground.units[node],
            "orgIds": [ground.tenant, ground.platform],
            "modelId": ground.model,
            "ownerId": ground.owner,
            "startsAt": start,
            "endsAt": end,
        }
        return request("POST", ground.url, "/v1/bench/reservations", json.dumps(body).encode())

    return make


def by_pgbench(ground: Ground, seconds: float, begin_at: int) -> float:
    """Transactions a second of the bare statement by pgbench, from terms number `begin_at` on."""
    from bench.bare import INSERT

    nodes = range(2 * CLIENTS, 3 * CLIENTS)

    def choose(values: list[str]) -> str:
        cases = " ".join(f"WHEN {number} THEN '{value}'" for number, value in enumerate(values))
        return f"(CASE :client_id {cases} END)"

    hour = f"(timestamptz '2100-01-01' + (:n + {begin_at}) * interval '1 hour')"
    statement = INSERT.format(
        id="gen_random_uuid()",
        node=choose([ground.nodes[node] for node in nodes]),
        start=hour,
        end=f"({hour} + interval '1 hour')",
        orgs=f"'{{{ground.tenant},{ground.platform}}}'",
        model=f"'{ground.model}'",
        units=choose(["{" + ",".join(ground.units[node]) + "}" for node in nodes]),
        event="gen_random_uuid()",
        owner=f"'{ground.owner}'",
        after="'"
        + json.dumps({"units": ground.units[0], "audience": [ground.tenant, ground.platform]})
        + "'",
    )
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write("\\set n :n + 1\n" + " ".join(statement.split()) + ";\n")
        script.flush()
        done = subprocess.run(
            [str(binaries.postgres("pgbench")), ground.database_url, "--no-vacuum", "--client", str(CLIENTS)]
            + [
                "--jobs",
                "2",
                "--time",
                str(max(1, round(seconds))),
                "--define",
                "n=0",
                "--file",
                script.name,
            ],
            check=False,
            capture_output=True,
            text=True,
        )
    line = next((line for line in done.stdout.splitlines() if line.startswith("tps")), "")
    if done.returncode or not line or "aborted" in done.stdout:
        raise RuntimeError(f"pgbench: {done.stdout}{done.stderr}")
    return float(line.split()[2])


def constant(ground: Ground, path: str, token: str = "") -> Callable[[int, int], bytes]:
    """Requests for the constant."""
    raw = request("GET", ground.url, path, token=token)
    return lambda _client, _number: raw


def show(name: str, ratios: list[float], goal: float | None) -> None:
    """Print a ratio's minimum, median and maximum over the rounds."""
    wanted = f"   goal {goal}" if goal else ""
    print(f"  {name:58} {min(ratios):5.2f} {statistics.median(ratios):6.2f} {max(ratios):6.2f}{wanted}")


def detail(name: str, results: list[Result]) -> None:
    """Print one contender's own figures, which mean something only beside the other's."""
    rate = statistics.median(result.rate for result in results)
    milliseconds = statistics.median(result.median for result in results)
    print(f"  {name:58} {rate:8.0f} a second, {milliseconds:6.2f} ms")


def main() -> None:
    """Run it all."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each contender in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--big", action="store_true", help="fleets of up to 100,000 nodes; takes minutes")
    parser.add_argument("--only", choices=PARTS, help="one part of it")
    parser.add_argument("--short", action="store_true", help="small fleets and one round: shows that it runs")
    options = parser.parse_args()
    if options.short:
        options.seconds, options.rounds = 0.5, 1
    if options.only is None:
        sys.exit(run_each_part(sys.argv[1:]))

    say(f"starting a server for {options.only}")
    with stack.running() as env:
        ground = prepare(env)
        if options.only == "reserve":
            promises(ground, options.seconds, options.rounds)
        elif options.only == "create":
            sizes = (100,) if options.short else create.SIZES
            create.measure(ground, sizes=sizes, rounds=options.rounds, seconds=options.seconds / 2)
        else:
            sizes = (100,) if options.short else availability.SIZES if options.big else availability.SIZES[:1]
            availability.measure(
                ground, env["OPENRELAY_HOME"], sizes=sizes, rounds=options.rounds, seconds=options.seconds / 2
            )


def run_each_part(arguments: list[str]) -> int:
    """Run every part on a database of its own, so that no part meets what another one left; the exit code."""
    for part in PARTS:
        done = subprocess.run([sys.executable, "-m", "bench", *arguments, "--only", part], check=False)
        if done.returncode:
            return done.returncode
    return 0


def promises(ground: Ground, seconds: float, rounds: int) -> None:
    """Reservations and constants, in turn."""
    contenders: dict[str, tuple[Callable[[int, int], bytes], list[Result]]] = {
        "reserve": (promised(ground), []),
        "bare": (bare(ground), []),
        "authenticated": (constant(ground, "/v1/bench/authenticated", ground.token), []),
        "anonymous": (constant(ground, "/v1/bench/anonymous"), []),
    }
    pgbench: list[float] = []
    for make, _ in contenders.values():
        run(ground.url, CLIENTS, 1.0, make)  # warm
    for number in range(rounds):
        say(f"reserve: round {number + 1} of {rounds}")
        # In turn within a round, and the other way round in the next, so that drift favours nobody.
        order = list(contenders) if number % 2 else list(reversed(contenders))
        for name in order:
            make, results = contenders[name]
            results.append(run(ground.url, CLIENTS, seconds, make))
        pgbench.append(by_pgbench(ground, seconds, begin_at=number * 1_000_000))

    reserve, plain = contenders["reserve"][1], contenders["bare"][1]
    known, anybody = contenders["authenticated"][1], contenders["anonymous"][1]
    print(f"{CLIENTS} clients, {rounds} rounds of {seconds:g} s each, {time.strftime('%Y-%m-%d')}\n")
    print(f"  {'ratio of throughput':58} {'min':>5} {'median':>6} {'max':>6}")
    show("reserve 4 units / bare view, same inserts", _ratios(reserve, plain), 0.6)
    show(
        "reserve 4 units / the statement by pgbench",
        [result.rate / tps for result, tps in zip(reserve, pgbench, strict=True)],
        None,
    )
    show("authenticated constant / anonymous constant", _ratios(known, anybody), 0.8)
    print()
    detail("reserve", reserve)
    detail("bare view", plain)
    detail("authenticated constant", known)
    detail("anonymous constant", anybody)
    print(f"  {'the statement by pgbench':58} {statistics.median(pgbench):8.0f} a second")


def _ratios(one: list[Result], other: list[Result]) -> list[float]:
    return [mine.rate / theirs.rate for mine, theirs in zip(one, other, strict=True)]


if __name__ == "__main__":
    main()
