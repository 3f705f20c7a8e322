"""What must be true of the database at every moment, checked from the outside.

Each check is one query for the rows which break one promise. Constraints stand behind some of them, and
they are checked all the same: a restored or hand-edited database may lack them. Reading takes no lock, and
is of one snapshot, so that work in progress is seen whole or not at all.
"""

from dataclasses import dataclass

from django.conf import settings
from django.db import connection, transaction


@dataclass(frozen=True, slots=True)
class Promise:
    """One thing that must hold, in words, and the query for what breaks it: one column, a sentence a row."""

    words: str
    sql: str


PROMISES = (
    Promise(
        "there is exactly one platform ops organization, once there is any organization",
        """
        SELECT format('%s organizations are the platform ops one', count(*) FILTER (WHERE is_platform_ops))
        FROM identity_organization HAVING count(*) > 0 AND count(*) FILTER (WHERE is_platform_ops) <> 1
        """,
    ),
    Promise(
        "a node's generations are numbered 1 to its present one",
        """
        SELECT format('node %s is at generation %s, and its generations are %s', node.id, node.topology_gen,
                      coalesce(string_agg(gen.number::text, ',' ORDER BY gen.number), 'none'))
        FROM nodes_node node LEFT JOIN nodes_topologygeneration gen ON gen.node_id = node.id
        GROUP BY node.id
        HAVING node.topology_gen <> count(gen.number) OR node.topology_gen <> coalesce(max(gen.number), 0)
        """,
    ),
    Promise(
        "a node that was removed has no units, and nothing on it but what is stopped",
        """
        SELECT format('node %s was removed and has %s', node.id, rest.words) FROM nodes_node node
        CROSS JOIN LATERAL (
            SELECT format('unit %s', unit.address) AS words FROM nodes_gpuunit unit
            WHERE unit.node_id = node.id AND unit.gone_at IS NULL
            UNION ALL
            SELECT format('%s workload %s', workload.status, workload.id) FROM compute_workload workload
            WHERE workload.node_id = node.id AND workload.status NOT IN ('stopped', 'terminated')
        ) rest
        WHERE node.removed_at IS NOT NULL
        """,
    ),
    Promise(
        "no unit is in two holds at once",
        """
        SELECT format('unit %s is in holds %s and %s at once', unit.address, one.hold_id, other.hold_id)
        FROM nodes_holdunit one JOIN nodes_holdunit other
          ON other.unit_id = one.unit_id AND other.id > one.id AND other.term && one.term
        JOIN nodes_gpuunit unit ON unit.id = one.unit_id
        """,
    ),
    Promise(
        "a held unit has its hold's node and term",
        """
        SELECT format('held unit %s of hold %s differs from it in node or term', held.unit_id, held.hold_id)
        FROM nodes_holdunit held LEFT JOIN nodes_hold hold
          ON hold.id = held.hold_id AND hold.node_id = held.node_id AND hold.term = held.term
        LEFT JOIN nodes_gpuunit unit ON unit.id = held.unit_id AND unit.node_id = held.node_id
        WHERE hold.id IS NULL OR unit.id IS NULL
        """,
    ),
    Promise(
        "a hold has a reservation, units, and an audience with the platform ops organization in it",
        """
        SELECT format('hold %s lacks its %s', hold.id, concat_ws(' and ',
            CASE WHEN contract.hold_id IS NULL THEN 'reservation' END,
            CASE WHEN NOT EXISTS (SELECT FROM nodes_holdunit held WHERE held.hold_id = hold.id)
                 THEN 'units' END,
            CASE WHEN NOT EXISTS (
                SELECT FROM nodes_holdaudience audience JOIN identity_organization org
                  ON org.id = audience.organization_id
                WHERE audience.hold_id = hold.id AND org.is_platform_ops) THEN 'operators' END))
        FROM nodes_hold hold LEFT JOIN reservations_reservation contract ON contract.hold_id = hold.id
        WHERE contract.hold_id IS NULL
           OR NOT EXISTS (SELECT FROM nodes_holdunit held WHERE held.hold_id = hold.id)
           OR NOT EXISTS (
                SELECT FROM nodes_holdaudience audience JOIN identity_organization org
                  ON org.id = audience.organization_id
                WHERE audience.hold_id = hold.id AND org.is_platform_ops)
        """,
    ),
    Promise(
        "a deleted organization is in no reservation in force and has no enrolled node",
        """
        SELECT format('organization %s was deleted and is in hold %s', org.id, hold.id)
        FROM identity_organization org JOIN (
            SELECT hold_id, organization_id FROM nodes_holdaudience
            UNION SELECT reservation_id, organization_id FROM reservations_reservationmanager) party
          ON party.organization_id = org.id
        JOIN nodes_hold hold ON hold.id = party.hold_id
        WHERE org.deleted_at IS NOT NULL AND NOT isempty(hold.term)
          AND (upper(hold.term) IS NULL OR upper(hold.term) > {now})
        UNION ALL
        SELECT format('organization %s was deleted and has node %s', org.id, node.id)
        FROM identity_organization org JOIN nodes_node node ON node.organization_id = org.id
        WHERE org.deleted_at IS NOT NULL AND node.removed_at IS NULL
        """,
    ),
    Promise(
        "a hold's term is what its contract says",
        """
        SELECT format('hold %s has the term %s, and its contract says %s', hold.id, hold.term, said.term)
        FROM nodes_hold hold JOIN reservations_reservation contract ON contract.hold_id = hold.id
        CROSS JOIN LATERAL (SELECT CASE
            WHEN contract.cancelled_at IS NULL THEN tstzrange(contract.starts_at, contract.ends_at)
            WHEN contract.cancelled_at <= contract.starts_at THEN 'empty'::tstzrange
            ELSE tstzrange(contract.starts_at, contract.cancelled_at) END AS term) said
        WHERE hold.term <> said.term
        """,
    ),
    Promise(
        "a hold is pinned to a generation that its node had",
        """
        SELECT format('hold %s is pinned to generation %s of a node at %s', hold.id, hold.topology_gen,
                      node.topology_gen)
        FROM nodes_hold hold JOIN nodes_node node ON node.id = hold.node_id
        WHERE hold.topology_gen > node.topology_gen OR hold.topology_gen < 1
        """,
    ),
    Promise(
        "a workload holds claims exactly while it is pending, deploying, running or interrupted",
        """
        SELECT format('%s workload %s holds %s GPUs by its claims, and should hold %s', workload.status,
                      workload.id, coalesce(held.gpus, 0), wanted.gpus)
        FROM compute_workload workload
        LEFT JOIN (SELECT claim.workload_id, sum(unit.gpu_count) AS gpus FROM compute_claim claim
                   JOIN nodes_gpuunit unit ON unit.id = claim.unit_id GROUP BY claim.workload_id) held
          ON held.workload_id = workload.id
        CROSS JOIN LATERAL (SELECT CASE
            WHEN workload.status IN ('pending', 'deploying', 'running', 'interrupted') THEN workload.gpu_count
            ELSE 0 END AS gpus) wanted
        WHERE coalesce(held.gpus, 0) <> wanted.gpus
          AND NOT EXISTS ( -- a unit that changed its GPU count under a workload keeps it
            SELECT FROM compute_claim claim JOIN nodes_gpuunit unit ON unit.id = claim.unit_id
            JOIN nodes_topologygeneration gen ON gen.node_id = unit.node_id AND gen.at > claim.created_at
            WHERE claim.workload_id = workload.id)
        """,
    ),
    Promise(
        "a claim is on its workload's node, for its wanted run, whose occupancy of the unit is open",
        """
        SELECT format('claim of workload %s on unit %s has no open occupancy of a wanted run on its node',
                      claim.workload_id, unit.address)
        FROM compute_claim claim JOIN nodes_gpuunit unit ON unit.id = claim.unit_id
        JOIN compute_workload workload ON workload.id = claim.workload_id
        LEFT JOIN compute_run run ON run.id = claim.run_id AND run.workload_id = claim.workload_id
          AND run.desired = 'running' AND run.closed_at IS NULL AND run.node_id = workload.node_id
        LEFT JOIN compute_occupancy occupancy ON occupancy.run_id = claim.run_id
          AND occupancy.unit_id = claim.unit_id AND occupancy.closed_at IS NULL
        WHERE run.id IS NULL OR occupancy.id IS NULL OR unit.node_id <> workload.node_id
        """,
    ),
    Promise(
        "a workload has either GPUs or, as a VM, a size",
        """
        SELECT format('%s %s has %s GPUs and the size "%s"', workload.kind, workload.id, workload.gpu_count,
                      workload.resource_size)
        FROM compute_workload workload
        WHERE (workload.gpu_count > 0) = (workload.resource_size <> '' AND workload.kind = 'vm')
        """,
    ),
    Promise(
        "a VM without GPUs has a wanted run on its node exactly while it deploys, runs or is interrupted",
        """
        SELECT format('%s VM %s has %s wanted runs on its node', workload.status, workload.id, count(run.id))
        FROM compute_workload workload LEFT JOIN compute_run run ON run.workload_id = workload.id
          AND run.node_id = workload.node_id AND run.desired = 'running' AND run.closed_at IS NULL
        WHERE workload.gpu_count = 0
        GROUP BY workload.id
        HAVING count(run.id) <> (workload.status IN ('pending', 'deploying', 'running', 'interrupted'))::int
        """,
    ),
    Promise(
        "a run is open exactly while an occupancy of it is",
        """
        SELECT format('run %s of workload %s is %s, and %s of its occupancies are open',
                      run.id, run.workload_id,
                      CASE WHEN run.closed_at IS NULL THEN 'open' ELSE 'closed' END, count(occupancy.id)
                      FILTER (WHERE occupancy.closed_at IS NULL))
        FROM compute_run run JOIN compute_occupancy occupancy ON occupancy.run_id = run.id
        GROUP BY run.id
        HAVING (run.closed_at IS NULL) <> (count(occupancy.id) FILTER (WHERE occupancy.closed_at IS NULL) > 0)
        """,
    ),
    Promise(
        "a workload that ended has no run that is wanted",
        """
        SELECT format('%s workload %s has run %s that is still wanted', workload.status, workload.id, run.id)
        FROM compute_workload workload JOIN compute_run run ON run.workload_id = workload.id
        WHERE workload.status IN ('stopped', 'failed', 'terminated')
          AND run.desired = 'running' AND run.closed_at IS NULL
        """,
    ),
    Promise(
        "on reserved units nobody is placed in the term but by the hold's right, or as spot on a release",
        """
        SELECT format('%s workload %s of organization %s sits on unit %s, withheld from it by reservation %s',
                      workload.tier, workload.id, workload.organization_id, unit.address, held.hold_id)
        FROM compute_claim claim
        JOIN compute_workload workload ON workload.id = claim.workload_id
        JOIN nodes_gpuunit unit ON unit.id = claim.unit_id
        JOIN nodes_holdunit held ON held.unit_id = claim.unit_id
          -- a claim of the very instant a hold was made came before it, under the same lock
          AND held.term @> claim.created_at AND claim.created_at > lower(held.term) AND held.term @> {now}
        WHERE claim.hold_id IS DISTINCT FROM held.hold_id
          AND NOT (workload.tier = 'spot' AND held.released)
        """,
    ),
    Promise(
        "a terminated workload was audited as terminated exactly once",
        """
        SELECT format('workload %s is terminated, and %s events say so', workload.id, count(event.id))
        FROM compute_workload workload LEFT JOIN audit_auditevent event
          ON event.target_id = workload.id::text AND event.event = 'vm.terminated'
        WHERE workload.status = 'terminated' AND workload.terminated_at > {now} - {audited}
        GROUP BY workload.id HAVING count(event.id) <> 1
        """,
    ),
    Promise(
        "a reservation was audited as created once, and as cancelled once if it was",
        """
        SELECT format('reservation %s has %s events of its creation and %s of its cancelling',
                      contract.hold_id,
                      count(event.id) FILTER (WHERE event.event = 'reservation.created'),
                      count(event.id) FILTER (WHERE event.event = 'reservation.cancelled'))
        FROM reservations_reservation contract LEFT JOIN audit_auditevent event
          ON event.target_id = contract.hold_id::text
             AND event.event IN ('reservation.created', 'reservation.cancelled')
        WHERE contract.created_at > {now} - {audited}
        GROUP BY contract.hold_id
        HAVING count(event.id) FILTER (WHERE event.event = 'reservation.created') <> 1
            OR count(event.id) FILTER (WHERE event.event = 'reservation.cancelled')
               <> (contract.cancelled_at IS NOT NULL)::int
        """,
    ),
    Promise(
        "an announcement was audited once",
        """
        SELECT format('announcement %s of reservation %s has %s audit events',
                      told.event, told.reservation_id, count(event.id))
        FROM reservations_announcement told LEFT JOIN audit_auditevent event
          ON event.target_id = told.reservation_id::text AND event.event = told.event
             AND event.created_at = told.announced_at
             AND coalesce((event.after ->> 'topologyGen')::int, 0) = told.key
        WHERE told.announced_at > {now} - {audited}
        GROUP BY told.id HAVING count(event.id) <> 1
        """,
    ),
)


def violations() -> list[str]:
    """Everything that is wrong now, a sentence each; empty when all promises hold."""
    found = []
    # Within a caller's transaction its own snapshots have to do.
    outermost = not connection.in_atomic_block
    with transaction.atomic(), connection.cursor() as cursor:
        if outermost:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        for promise in PROMISES:
            cursor.execute(promise.sql.replace("{now}", settings.CLOCK_SQL).replace("{audited}", _audited()))
            found += [row[0] for row in cursor.fetchall()]
    return found


def _audited() -> str:
    """For how long back there is sure to be an event of each change, as an interval of PostgreSQL."""
    kept = settings.AUDIT_RETENTION_DAYS
    return f"interval '{min(300, max(kept - 1, 0)) if kept else 300} days'"
