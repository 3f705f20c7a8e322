"""Availability over HTTP against a constant answer of the same server, at fleets of several sizes."""

import json
import statistics
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.fleet import grow
from bench.load import Result, request, run, say

SIZES = (1_000, 10_000, 100_000)
PATH = "/v1/gpu-availability"


def resident_mb(home: str) -> list[float]:
    """The resident memory of each web worker of the home, in MB, the largest first."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            environment = (folder / "environ").read_bytes()
            status = (folder / "status").read_text()
        except OSError:
            continue
        if b"openrelay.web.worker" in command and home.encode() in environment:
            kilobytes = next(line for line in status.splitlines() if line.startswith("VmRSS"))
            found.append(int(kilobytes.split()[1]) / 1024)
    return sorted(found, reverse=True)


def asking(url: str, path: str, token: str) -> Callable[[int, int], bytes]:
    """The request that the published client sends, for it takes compressed answers."""
    raw = request("GET", url, path, token=token)
    raw = raw.replace(b"\r\n\r\n", b"\r\nAccept-Encoding: gzip, deflate\r\n\r\n", 1)
    return lambda _client, _number: raw


def measure(ground: Any, home: str, *, sizes: tuple[int, ...], rounds: int, seconds: float) -> None:
    """Grow the fleet from size to size; at each, ask for the constant and for availability in turn.

    Once for an organization that nothing is reserved to, and once for one with a reservation on three nodes.
    """
    from django.db import connection

    from compute.services.fleet import refresh
    from openrelay.audit.services.record import OPERATOR
    from openrelay.identity.services.keys import create_server_key
    from openrelay.identity.services.organizations import create_organization
    from reservations.services.fleet_loading import load

    address = "0000:10:00.0"
    units = [
        {
            "address": f"0000:{bus:02x}:00.0",
            "allocClass": "vfio-group",
            "gpus": [{"address": f"0000:{bus:02x}:00.0", "model": "bench-gpu"}],
        }
        for bus in range(0x10, 0x18)
    ]
    host = {"cpuCores": 128, "ramMb": 1048576, "diskTotalGb": 16000, "diskFreeGb": 16000}
    node = load(
        {
            "nodes": [
                {"hostname": "many", "organization": "owner", "inventory": {"units": units, "host": host}}
            ]
        },
        actor=OPERATOR,
    ).nodes[-1]
    tokens = {}
    for name in ("buyer", "holder"):
        org = create_organization(actor=OPERATOR, name=name.title(), slug=name)
        _, tokens[name] = create_server_key(
            actor=OPERATOR, organization_id=org.pk, name="bench", permissions=["compute.read"]
        )
        if name == "holder":
            for number in range(3):
                _reserve(ground, ground.nodes[number], str(org.pk), address)
    print(f"\n  {'ratio of median latency: availability / constant':58} {'min':>5} {'median':>6} {'max':>6}")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE nodes_nodeheartbeat SET seen_at = now() + interval '1 day'")
    here = 1
    for size in sizes:
        say(f"availability: growing the fleet to {size:,} nodes")
        started = time.perf_counter()
        grow(connection, node.pk, here, size)
        here = size
        grown = time.perf_counter()
        refresh.refresh()
        surveyed = time.perf_counter()
        contenders = {
            "constant": asking(ground.url, "/v1/bench/authenticated", tokens["buyer"]),
            "buyer": asking(ground.url, PATH, tokens["buyer"]),
            "holder": asking(ground.url, PATH, tokens["holder"]),
        }
        results: dict[str, list[Result]] = {name: [] for name in contenders}
        for make in contenders.values():
            run(ground.url, 2, 1.0, make)  # warm
        for number in range(rounds):
            say(f"availability at {size:,} nodes: round {number + 1} of {rounds}")
            for name in list(contenders) if number % 2 else list(reversed(contenders)):
                results[name].append(run(ground.url, 1, seconds, contenders[name]))
        constant = results["constant"]
        for name, what in (("buyer", "nothing reserved"), ("holder", "own reservations on 3 nodes")):
            ratios = [
                mine.median / theirs.median for mine, theirs in zip(results[name], constant, strict=True)
            ]
            label = f"{size:,} nodes, {what}"
            middle = statistics.median(ratios)
            print(f"  {label:58} {min(ratios):5.2f} {middle:6.2f} {max(ratios):6.2f}   goal 2")
        print(
            f"    constant {statistics.median(r.median for r in constant):.2f} ms; "
            f"grown in {grown - started:.0f} s, surveyed in {surveyed - grown:.1f} s; "
            f"web workers {', '.join(f'{mb:.0f}' for mb in resident_mb(home))} MB   goal 150"
        )


def _reserve(ground: Any, node_id: str, organization_id: str, address: str) -> None:
    body = {"unitIds": [address], "allowedOrgIds": [organization_id], "reason": "bench"}
    asked = urllib.request.Request(
        f"{ground.url}/v1/nodes/{node_id}/reservations",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {ground.token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(asked) as answer:
        assert answer.status == 200, answer.read()
