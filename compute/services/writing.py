"""Writing a placed workload, in one statement.

By hand, because it is the write that everybody waits for under the node's lock: five tables in one round
trip. What it writes is what the models say; the constraints behind them hold all the same.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

from django.db import connection

from compute.models import Run, Workload
from openrelay.errors import Invalid
from openrelay.rows import columns, placeholders, values

# A unit, and the hold by whose audience it is had; None for what is open to others too.
Right = tuple[UUID, UUID | None]


def insert(workload: Workload, keys: Sequence[UUID], units: Sequence[Right]) -> None:
    """Insert the workload with its keys, its first run and claims on `units`, at its
    `created_at`, under the lock of its node; its price becomes what its GPUs cost now, unless it has one.

    Raises Invalid (VALIDATION_ERROR) when one of the keys was deleted meanwhile.
    """
    sold: list[Any] = [workload.gpu_count, workload.organization_id, workload.gpu_model_id, workload.tier]
    with connection.cursor() as cursor:
        cursor.execute(
            _insert(),
            [*sold, *values(workload), list(keys), *_begun(workload, 1, units, workload.created_at)],
        )
        attached, workload.price_per_hour_cents = cursor.fetchone()
    if attached != len(keys):
        raise Invalid("sshKeyIds names a key that was deleted just now. List your keys and ask again.")


def insert_run(workload: Workload, number: int, units: Sequence[Right], at: datetime) -> None:
    """Insert a further run of the workload with claims on `units`, under its node's lock."""
    with connection.cursor() as cursor:
        cursor.execute(f"WITH {_begin()} SELECT", _begun(workload, number, units, at))


@cache
def _insert() -> str:
    row = placeholders(Workload, price_per_hour_cents="coalesce(%s, (SELECT cents FROM price))")
    return f"""
    WITH price AS (
        SELECT %s * coalesce(own.cents_per_gpu_hour, listed.cents_per_gpu_hour) AS cents
        FROM compute_gpuprice listed
        LEFT JOIN compute_orggpuprice own ON own.organization_id = %s
            AND own.gpu_model_id = listed.gpu_model_id AND own.tier = listed.tier
        WHERE listed.gpu_model_id = %s AND listed.tier = %s
    ), vm AS (
        INSERT INTO compute_workload ({columns(Workload)}) VALUES ({row}) RETURNING id, price_per_hour_cents
    ), attached AS (
        INSERT INTO compute_workloadsshkey (workload_id, ssh_key_id)
        -- The lock keeps who deletes a key waiting until this is done, and makes this wait for who is at it.
        SELECT vm.id, key.id FROM vm, compute_sshkey key WHERE key.id = ANY(%s) FOR KEY SHARE OF key
        RETURNING id
    ), {_begin()}
    SELECT (SELECT count(*) FROM attached), price_per_hour_cents FROM vm
    """  # noqa: S608  (names of our own models)


@cache
def _begin() -> str:
    """A run, with a claim on each unit; what a run has a claim on, it may be on."""
    return f"""
    run AS (
        INSERT INTO compute_run ({columns(Run)}) VALUES ({placeholders(Run)})
        RETURNING id, workload_id, node_id, created_at
    ), claims AS (
        INSERT INTO compute_claim (unit_id, hold_id, workload_id, run_id, node_id, created_at)
        SELECT chosen.unit, chosen.hold, run.workload_id, run.id, run.node_id, run.created_at
        FROM run, unnest(%s::uuid[], %s::uuid[]) AS chosen (unit, hold)
        RETURNING unit_id
    ), occupancies AS (
        INSERT INTO compute_occupancy (unit_id, run_id, node_id, opened_at, closed_by, override_reason)
        SELECT claims.unit_id, run.id, run.node_id, run.created_at, '', '' FROM claims, run
    )
    """  # noqa: S608  (names of our own models)


def _begun(workload: Workload, number: int, units: Sequence[Right], at: datetime) -> list[Any]:
    run = Run(workload=workload, node=workload.node, number=number, created_at=at)
    return [
        *values(run),
        [unit_id for unit_id, _ in units],
        [hold_id for _, hold_id in units],
    ]
