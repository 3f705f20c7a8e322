"""What counting a fleet's pod capacity costs does not depend on where its workloads are."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from compute.models import Workload
from compute.services.fleet import pod_counts
from tests import factories
from tests import test_query_counts as filling
from tests.reservations.conftest import Fleet, fleet

__all__ = ["fleet"]

pytestmark = pytest.mark.django_db


def scans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every step of a plan."""
    yield plan
    for step in plan.get("Plans", []):
        yield from scans(step)


def test_workloads_that_are_all_on_one_node_are_read_once_and_not_for_each_node(fleet: Fleet) -> None:
    filling.pod_nodes(fleet, 50)
    filling.workloads(fleet, 1000)
    asked = {"models": [factories.gpu_model().pk], "levels": [1], "infiniband": False, "volume": 50}
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE compute_workload, nodes_node, nodes_gpuunit")
        cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + pod_counts._COUNT, asked)
        ((told,),) = cursor.fetchall()
    plan = told if isinstance(told, list) else json.loads(told)
    read = [step for step in scans(plan[0]["Plan"]) if step.get("Relation Name") == Workload._meta.db_table]
    assert read
    assert [step for step in read if step["Actual Loops"] > 1] == []
