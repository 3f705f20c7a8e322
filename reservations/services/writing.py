"""Writing a reservation with its hold and its audit event, in one statement.

By hand, because it is the write that everybody waits for under the node's lock: six tables in one round
trip. What it writes is what the models say; the constraints behind them hold all the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from openrelay.audit.services.record import INSERT_ONE, AuditEntry, insert_values
from openrelay.core.rows import query
from reservations.models import Reservation

_INSERT = f"""
WITH hold AS (
    INSERT INTO nodes_hold (id, node_id, term, topology_gen)
    VALUES (%(id)s, %(node)s, tstzrange(%(start)s::timestamptz, %(end)s::timestamptz), %(generation)s)
    RETURNING id, node_id, term
), audience AS (
    INSERT INTO nodes_holdaudience (hold_id, organization_id)
    SELECT hold.id, org.id FROM hold, identity_organization org
    WHERE org.id = ANY(%(audience)s::uuid[]) AND org.deleted_at IS NULL
    RETURNING organization_id
), held AS (
    INSERT INTO nodes_holdunit
        (hold_id, node_id, unit_id, term, released, pinned_class, pinned_model_id, pinned_gpu_count)
    SELECT hold.id, hold.node_id, unit.id, hold.term, false,
           unit.alloc_class, unit.gpu_model_id, unit.gpu_count
    FROM hold, nodes_gpuunit unit WHERE unit.id = ANY(%(units)s::uuid[])
), contract AS (
    INSERT INTO reservations_reservation
        (hold_id, starts_at, ends_at, contract_ref, reason, created_by, created_at, updated_at, pinned_at)
    SELECT hold.id, %(start)s, %(end)s::timestamptz, %(contract_ref)s, %(reason)s, %(created_by)s,
           %(at)s, %(at)s, %(at)s
    FROM hold
    RETURNING hold_id
), managers AS (
    INSERT INTO reservations_reservationmanager (reservation_id, organization_id)
    SELECT contract.hold_id, org.id FROM contract, identity_organization org
    WHERE org.id = ANY(%(managers)s::uuid[]) AND org.deleted_at IS NULL
    RETURNING organization_id
), audited AS ({INSERT_ONE})
SELECT ARRAY(SELECT organization_id FROM audience), ARRAY(SELECT organization_id FROM managers),
       ARRAY(SELECT org.id FROM identity_organization org WHERE org.id = ANY(%(audience)s::uuid[])
             AND NOT org.reservations_enabled AND NOT org.is_platform_ops)
"""  # noqa: S608  (one constant in another)


@dataclass(frozen=True, slots=True)
class Written:
    """The parties of a reservation that was inserted: those of them that are organizations, and those of the
    audience for which reservations are not enabled.
    """

    organizations: frozenset[UUID]
    disabled: tuple[UUID, ...]


def insert(
    reservation: Reservation,
    unit_ids: Sequence[str],
    audience: Sequence[UUID],
    managers: Sequence[UUID],
    entry: AuditEntry,
) -> Written:
    """Insert the reservation, its hold, what belongs to them, and `entry`, at its `created_at`.

    The caller rolls back unless all of `audience` and `managers` are organizations and none is disabled.
    Raises IntegrityError of `one_hold_at_a_time` when another hold has one of the units in that term.
    """
    hold = reservation.hold
    at: datetime = reservation.created_at
    values: dict[str, Any] = {
        "id": hold.pk,
        "node": hold.node_id,
        "start": reservation.starts_at,
        "end": reservation.ends_at,
        "generation": hold.topology_gen,
        "audience": list(audience),
        "managers": list(managers),
        "units": unit_ids,
        "contract_ref": reservation.contract_ref,
        "reason": reservation.reason,
        "created_by": reservation.created_by,
        "at": at,
        **insert_values(entry),
    }
    ((audience_ids, manager_ids, disabled_ids),) = query(_INSERT, values)
    return Written(frozenset((*audience_ids, *manager_ids)), tuple(disabled_ids))
