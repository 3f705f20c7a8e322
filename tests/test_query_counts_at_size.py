"""What everybody reads costs the same beside 5,000 nodes, and 5,000 of everything else, as beside ten.

All lists are full at once here, and what fills them is committed, as it is where people work.
"""

import json

import pytest
from django.db import connection

from bench.fleet import grow
from compute.services.fleet import refresh
from nodes.models import Node, NodeHeartbeat
from openrelay.core.clock import Now
from tests import test_query_counts as filling
from tests.reservations.conftest import Fleet, fleet
from tests.test_query_counts import READS, Reading, further_pages

__all__ = ["fleet"]

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

FEW, MANY = 10, 5000
PAGING = {"list_org_vms", "list_pods", "list_audit_events"}
# A node has 256 units at most, and nobody sells thousands of GPU models.
SHORT, FEWER = {"list_reservation_units", "list_gpu_models"}, 250
# Lists kinds of things, of which there are no more however many things there are.
KINDS = {"list_pod_capacity"}

_MODELS = f"(SELECT id FROM nodes_gpumodel WHERE slug ~ '^model-[0-9]+-[0-9]+$') AND n < {FEWER // FEW}"
_HOLDS = "(SELECT id FROM nodes_hold WHERE lower(term) BETWEEN now() AND now() + interval '5 days')"
_LATER = "n * interval '9 days'"
_TERM = f"tstzrange(lower(term) + {_LATER}, upper(term) + {_LATER})"
_NUMBER = "(('x' || substr(address, 9, 2))::bit(8)::int + n * 16)"
_UNIT = (
    f"'000b:' || lpad(to_hex({_NUMBER} / 32), 2, '0') || ':' || lpad(to_hex({_NUMBER} % 32), 2, '0') || '.0'"
)

_NODE = "md5((SELECT id FROM nodes_node WHERE hostname = 'many-{}-0') || ':' || n)::uuid"
_UNITS = f"address LIKE '000a:%' AND n < {FEWER // FEW}"

# Rows to copy: their table, which of them, the columns that name a copied row, and what else has to differ.
COPIES: tuple[tuple[str, str, tuple[str, ...], dict[str, str]], ...] = (
    # On nodes of their own, a few each.
    ("compute_workload", "name LIKE 'vm-%' AND kind = 'vm'", ("id",), {"node_id": _NODE.format(FEW + 1)}),
    ("compute_workload", "name LIKE 'vm-%' AND kind = 'pod'", ("id",), {"node_id": _NODE.format(FEW)}),
    ("compute_sshkey", "name LIKE 'key-%'", ("id",), {"fingerprint": "fingerprint || '-' || n"}),
    ("identity_apikey", "name LIKE 'key-%'", ("id",), {"sha256": "md5(sha256 || n) || md5(n::text)"}),
    ("nodes_gpumodel", f"id IN {_MODELS}", ("id",), {"slug": "slug || '-' || n"}),
    ("compute_gpuprice", f"gpu_model_id IN {_MODELS}", ("id", "gpu_model_id"), {}),
    ("compute_orggpuprice", f"gpu_model_id IN {_MODELS}", ("id", "gpu_model_id"), {}),
    ("nodes_location", "slug LIKE 'place-%'", ("id",), {"slug": "slug || '-' || n"}),
    ("compute_vmtemplate", "slug LIKE 'template-%'", ("id",), {"slug": "slug || '-' || n"}),
    (
        "compute_usagesession",
        "ended_at IS NOT NULL",
        ("id",),
        {"started_at": f"started_at - {_LATER}", "ended_at": f"ended_at - {_LATER}"},
    ),
    ("audit_auditevent", "event = 'vm.created'", ("id",), {}),
    ("identity_user", "email LIKE 'many-%'", ("id",), {"email": "n || '-' || email"}),
    (
        "identity_membership",
        "user_id IN (SELECT id FROM identity_user WHERE email LIKE 'many-%')",
        ("id", "user_id"),
        {},
    ),
    (
        "identity_organization",
        "name = 'Org'",
        ("id",),
        {"slug": "slug || '-' || n", "short_id": "short_id || '-' || n"},
    ),
    (
        "identity_membership",
        "organization_id IN (SELECT id FROM identity_organization WHERE slug ~ '^[0-9]+-[0-9]+$')",
        ("id", "organization_id"),
        {},
    ),
    ("identity_role", "name LIKE 'Role 10 %'", ("id",), {"name": "name || ' ' || n"}),
    ("nodes_gpuunit", _UNITS, ("id",), {"address": _UNIT}),
    ("nodes_gpu", f"unit_id IN (SELECT id FROM nodes_gpuunit u WHERE u.{_UNITS})", ("id", "unit_id"), {}),
    ("nodes_hold", f"id IN {_HOLDS}", ("id",), {"term": _TERM}),
    ("nodes_holdaudience", f"hold_id IN {_HOLDS}", ("hold_id",), {}),
    ("nodes_holdunit", f"hold_id IN {_HOLDS}", ("hold_id",), {"term": _TERM}),
    (
        "reservations_reservation",
        f"hold_id IN {_HOLDS}",
        ("hold_id",),
        {"starts_at": f"starts_at + {_LATER}", "ends_at": f"ends_at + {_LATER}"},
    ),
    ("reservations_reservationmanager", f"reservation_id IN {_HOLDS}", ("reservation_id",), {}),
)


def test_a_read_costs_the_same_beside_five_thousand_as_beside_ten(fleet: Fleet) -> None:
    reading = Reading(fleet)
    fill(fleet)
    few = measured(reading)
    multiply(fleet)
    many = measured(reading)
    first_pages = {name: cost - further_pages(name, content) for name, (cost, content) in many.items()}
    assert first_pages == {name: cost for name, (cost, _) in few.items()}
    for name in many:
        small, large = json.loads(few[name][1]), json.loads(many[name][1])
        if name in PAGING:
            assert len(large["items"]) == len(small["items"]) == FEW
            assert large["nextCursor"]
        elif name.startswith("list_") and name not in KINDS:
            assert len(small) < FEWER <= len(large), name
            assert len(large) >= MANY or name in SHORT, name


def fill(fleet: Fleet) -> None:
    """Ten of everything, as the tests of single reads make them. A kind of two is told by its number."""
    filling.pods(fleet, FEW)
    filling.workloads(fleet, FEW)
    filling.pod_nodes(fleet, FEW)
    filling.nodes(fleet, FEW + 1)
    filling.prices(fleet, FEW + 1)
    filling.roles(fleet, FEW)
    filling.members(fleet, FEW + 1)
    for kind in ("units", "ssh_keys", "api_keys", "locations", "templates", "sessions", "events"):
        getattr(filling, kind)(fleet, FEW)
    filling.memberships(fleet, FEW)
    filling.reservations(fleet, FEW)


def multiply(fleet: Fleet) -> None:
    """So many copies, made by PostgreSQL, that there are `MANY` of each. Half the nodes take pods."""
    for hostname in (f"many-{FEW}-0", f"many-{FEW + 1}-0"):
        grow(connection, Node.objects.get(hostname=hostname).pk, 0, MANY // 2)
    with connection.cursor() as cursor:
        for table, which, renamed, changed in COPIES:
            cursor.execute(
                "SELECT column_name FROM information_schema.columns WHERE table_schema = 'public' "
                "AND table_name = %s AND is_identity = 'NO' ORDER BY ordinal_position",
                [table],
            )
            names = [name for (name,) in cursor.fetchall()]
            values = {name: f"md5(t.{name}::text || ':' || n)::uuid" for name in renamed} | changed
            selected = ", ".join(values.get(name, name) for name in names)
            cursor.execute(
                f"INSERT INTO {table} ({', '.join(names)}) SELECT {selected} "
                f"FROM {table} t CROSS JOIN generate_series(1, {MANY // FEW}) n WHERE {which}"
            )
        cursor.execute("ANALYZE")


def measured(reading: Reading) -> dict[str, tuple[int, bytes]]:
    """What each read takes and answers, pages at one size, once what is new has been noticed."""
    NodeHeartbeat.objects.update(seen_at=Now())
    refresh.refresh()
    found = {}
    for route in READS:
        query = {"limit": FEW} if route.operation in PAGING else {}
        # The first uses of a key and of what a process remembers cost more, whatever there is to read.
        first, second = reading.of(route, **query), reading.of(route, **query)
        third = second if first[0] == second[0] else reading.of(route, **query)
        found[route.operation] = min(first, second, third, key=lambda answer: answer[0])
    return found
