"""The rows of a placed workload, inserted by one statement.

The SQL is written by hand because other requests wait for the node's lock meanwhile: it fills six tables in
one round trip. The models' constraints hold for it as for any other write.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from compute.models import Run, Workload
from openrelay.audit.services.record import INSERT_ONE, AuditEntry, insert_values
from openrelay.core.ids import new_id
from openrelay.core.rows import array, as_json, columns, fresh_as_json, query

# A unit, and the hold by whose audience the workload may use it; None for an unreserved or released unit.
Right = tuple[UUID, UUID | None]

# Rows come as JSON, in one parameter: a value for every column that this code knows. Others, which a newer
# release may have added already, have their defaults.
_ROW = "({columns}) SELECT {columns} FROM json_populate_record"
# A run, with a claim on each unit; what a run has a claim on, it may be on.
_BEGIN = f"""
run AS (
    INSERT INTO compute_run {_ROW.format(columns=columns(Run))}(NULL::compute_run, %(run)s::json)
    RETURNING id, workload_id, node_id, created_at
), claims AS (
    INSERT INTO compute_claim (unit_id, hold_id, workload_id, run_id, node_id, created_at)
    SELECT chosen.unit, chosen.hold, run.workload_id, run.id, run.node_id, run.created_at
    FROM run, unnest(%(units)s::uuid[], %(holds)s::uuid[]) AS chosen (unit, hold)
    RETURNING unit_id
), occupancies AS (
    INSERT INTO compute_occupancy (unit_id, run_id, node_id, opened_at, closed_by, override_reason)
    SELECT claims.unit_id, run.id, run.node_id, run.created_at, '', '' FROM claims, run
)
"""  # noqa: S608  (names of our own models)
_INSERT = f"""
WITH vm AS (
    INSERT INTO compute_workload {_ROW.format(columns=columns(Workload))}
        (NULL::compute_workload, %(vm)s::json)
    RETURNING id
), attached AS (
    INSERT INTO compute_workloadsshkey (workload_id, ssh_key_id)
    SELECT vm.id, key.id FROM vm, unnest(%(keys)s::uuid[]) AS key (id)
), {_BEGIN}, audited AS ({INSERT_ONE})
SELECT id FROM vm
"""  # noqa: S608  (constants of our own)
_INSERT_RUN = f"WITH {_BEGIN} SELECT id FROM run"  # noqa: S608  (a constant of our own)


def insert(
    workload: Workload,
    keys: Sequence[UUID],
    units: Sequence[Right],
    entry: AuditEntry,
    *,
    closing: bool = False,
) -> None:
    """Insert the workload with its keys, its first run and claims on `units`, and `entry`, at its
    `created_at`, under the lock of its node; `closing` as `query` has it.

    The transaction's end finds out whether one of the keys was deleted meanwhile: see `refuse_deleted_keys`.
    """
    query(
        _INSERT,
        {
            "vm": as_json(workload),
            "keys": array(keys),
            **_begun(workload, 1, units, workload.created_at),
            **insert_values(entry),
        },
        closing=closing,
    )


def insert_run(workload: Workload, number: int, units: Sequence[Right], at: datetime) -> None:
    """Insert a further run of the workload with claims on `units`, under its node's lock."""
    query(_INSERT_RUN, _begun(workload, number, units, at))


def _begun(workload: Workload, number: int, units: Sequence[Right], at: datetime) -> dict[str, Any]:
    run = fresh_as_json(
        Run,
        id=new_id(),
        workload_id=workload.pk,
        node_id=workload.node_id,
        number=number,
        created_at=at,
    )
    return {
        "run": run,
        "units": array(unit_id for unit_id, _ in units),
        "holds": array(hold_id for _, hold_id in units),
    }
