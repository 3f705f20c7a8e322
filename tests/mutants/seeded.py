"""Faults to plant: each takes one promise of the platform away, by a change of a few words.

An edit names the exact text that it replaces, which has to be there exactly once.
"""

from tests.mutants.mutant import Mutant, one
from tests.mutants.seeded_people import PEOPLE
from tests.mutants.seeded_shares import SHARES

_ELIGIBILITY = "compute/domain/eligibility.py"
_SELECTION = "compute/domain/selection.py"
_UNIT = "nodes/models/gpu_unit.py"
_SURVEY = "nodes/services/survey.py"
_REPORTS = "compute/services/agents/guest_reports.py"
_INVENTORY = "nodes/services/inventory.py"
_CAPACITY = "reservations/services/capacity.py"
_AMENDING = "reservations/services/amending.py"
_CLAIMS = "compute/services/lifecycle/claims.py"

MUTANTS = (
    Mutant(
        "no-node-lock",
        "changes of one node run one after the other",
        (
            (
                "nodes/services/locking.py",
                "WHERE id = %s::uuid FOR NO KEY UPDATE",
                "WHERE id = %s::uuid",
            ),
            (
                "nodes/services/locking.py",
                "WHERE id = wanted FOR NO KEY UPDATE SKIP LOCKED",
                "WHERE id = wanted",
            ),
        ),
    ),
    # The table of who may place where, row by row.
    one(
        "row-free",
        "a unit that is free and not reserved is open to everybody",
        _ELIGIBILITY,
        "    if held is None:\n        return Eligibility.UNRESERVED\n",
        "    if held is None:\n        return Eligibility.UNRESERVED if tier == SPOT else None\n",
    ),
    one(
        "row-draining",
        "a unit that an earlier guest may still be on is nobody's but the audience's",
        _ELIGIBILITY,
        "    if use.workload_id is not None or use.occupied:\n",
        "    if use.workload_id is not None:\n",
    ),
    one(
        "row-reserved-not-released",
        "what is reserved and not released is not for spot",
        _ELIGIBILITY,
        "held.active and held.released else None",
        "held.active else None",
    ),
    one(
        "row-reserved-audience",
        "the audience may have what is reserved to it",
        _ELIGIBILITY,
        "return Eligibility.RESERVED_DRAINING if use.occupied else Eligibility.RESERVED_FREE",
        "return None if not held.released else Eligibility.RESERVED_FREE",
    ),
    one(
        "row-reserved-draining",
        "the audience may have what is reserved to it and draining",
        _ELIGIBILITY,
        "return Eligibility.RESERVED_DRAINING if use.occupied else Eligibility.RESERVED_FREE",
        "return None if use.occupied else Eligibility.RESERVED_FREE",
    ),
    one(
        "row-reserved-by-name",
        "what is reserved is had by naming the node only",
        _ELIGIBILITY,
        "        if not named:\n            return None\n",
        "",
    ),
    one(
        "row-released-spot",
        "what is released is for sale to spot",
        _ELIGIBILITY,
        "return Eligibility.RELEASED if tier == SPOT and held.active and held.released else None",
        "return None",
    ),
    one(
        "row-released-ordinary",
        "what is released is not for ordinary workloads",
        _ELIGIBILITY,
        "if tier == SPOT and held.active",
        "if held.active",
    ),
    one(
        "released-first",
        "over the fleet spot goes where it takes the least of what is open to everybody",
        _SELECTION,
        "return from_open, sum(sizes) + sum(on_market)",
        "return 0, sum(sizes) + sum(on_market)",
    ),
    one(
        "row-spot-preempted",
        "a spot workload gives way to the audience",
        _ELIGIBILITY,
        "return Eligibility.RESERVED_SPOT if use.tier == SPOT else None",
        "return None",
    ),
    one(
        "row-ordinary-stays",
        "an ordinary workload gives way to nobody",
        _ELIGIBILITY,
        "return Eligibility.RESERVED_SPOT if use.tier == SPOT else None",
        "return Eligibility.RESERVED_FREE",
    ),
    one(
        "row-review-audience",
        "a reservation in review grants nothing to its audience",
        _SURVEY,
        "return self.active and organization_id in self.audience",
        "return organization_id in self.audience",
    ),
    one(
        "row-review-spot",
        "a reservation in review grants nothing to spot",
        _ELIGIBILITY,
        "held.active and held.released else None",
        "held.released else None",
    ),
    one(
        "row-failed-gpu",
        "nothing starts on a failed GPU",
        "compute/services/placement/snapshot.py",
        "usable = for_sale and not failed and alloc_class",
        "usable = for_sale and alloc_class",
    ),
    one(
        "row-unsold",
        "nothing starts on what is not for sale",
        _UNIT,
        '    if not sellable:\n        return not_sellable_reason or "it is not for sale"\n',
        "",
    ),
    one(
        "row-gone",
        "nothing starts on a unit that is gone",
        _UNIT,
        '    if gone:\n        return "it is gone from the node"\n',
        "",
    ),
    # Facts, and what is no evidence of them
    one(
        "free-on-absence",
        "a guest that a report leaves out is as it was",
        _REPORTS,
        "            let_waiting_deploy(held.node, actor=actor, at=held.at)\n",
        "            absent = Run.objects.open().filter(node=node, observed__in=Run.LIVE)\n"
        "            for run in absent.exclude(pk__in=[guest.run_id for guest in report.guests]):\n"
        "                close(run, by=Occupancy.AGENT, at=held.at)\n"
        "            let_waiting_deploy(held.node, actor=actor, at=held.at)\n",
    ),
    one(
        "free-on-stop",
        "a unit is free once the agent says so",
        _CLAIMS,
        '        jobs.on_commit("compute.tear_down", str(pk))\n',
        '        close(Run.objects.select_related("workload").get(pk=pk), by=Occupancy.AGENT, at=at)\n',
    ),
    one(
        "stale-report-taken",
        "a report older than the last changes nothing",
        "nodes/services/report_order.py",
        "    return Verdict(flag_reason=past or OLDER)\n",
        "    return Verdict(starts_count=True)\n",
    ),
    one(
        "partial-report-taken",
        "a report of an agent that could not look at all changes nothing",
        _REPORTS,
        "    if not report.complete:\n",
        "    if report.sequence < 0:\n",
    ),
    one(
        "past-epoch-taken",
        "a report of an earlier start of the agent does not count",
        "nodes/services/report_order.py",
        "    elif epoch and not AgentEpoch.objects.filter(node_id=order.pk, epoch=epoch).exists():\n",
        "    elif epoch:\n",
    ),
    one(
        "partial-inventory-taken",
        "an inventory of an agent that could not read all changes nothing",
        _INVENTORY,
        '    if not report["complete"]:\n',
        '    if report["sequence"] < 0:\n',
    ),
    one(
        "return-needs-no-review",
        "a unit's return is a change of topology",
        _INVENTORY,
        '            causes.append(f"{unit.address} is back")\n',
        "            pass\n",
    ),
    one(
        "late-guest-ignored",
        "a guest that turns up after its end is to go, and its units are taken",
        _REPORTS,
        "        return guest.state in Run.LIVE\n",
        "        return False\n",
    ),
    # Contracts
    Mutant(
        "overlap",
        "a unit is in one reservation at a time",
        (
            (
                "nodes/migrations/0001_initial.py",
                '("unit", "="), ("term", "&&")',
                '("hold", "="), ("term", "&&")',
            ),
            (_AMENDING, "    if found:\n        raise contracts.overlap(found, caller)\n", ""),
        ),
    ),
    one(
        "amend-keeps-old-end",
        "a term ends when it was amended to",
        _AMENDING,
        "    Hold.objects.filter(pk=reservation.pk).update(term=term)\n"
        "    reservation.ends_at = changes.ends_at\n",
        "    reservation.ends_at = changes.ends_at\n",
    ),
    one(
        "reaffirm-without-units",
        "what is gone cannot be re-affirmed",
        _AMENDING,
        "    if missing:\n",
        "    if False:\n",
    ),
    one(
        "reclaim-by-standers",
        "reclaim ends who is on the named units, and nobody else",
        _CAPACITY,
        "plan = select([unit.unit_id for unit in units])",
        "plan = split(list(Workload.objects.active().filter(node=held.node)))",
    ),
    one(
        "reclaim-ordinary",
        "reclaim ends spot workloads only",
        _CAPACITY,
        "victims=[workload for workload in workloads if workload.tier == Tier.SPOT]",
        "victims=list(workloads)",
    ),
    one(
        "dry-run-moves",
        "a dry run changes nothing",
        _CAPACITY,
        "        if dry_run:\n            return reservation, plan\n"
        "        changed = _move_boundary(held, units, released=False)\n",
        "        changed = _move_boundary(held, units, released=False)\n"
        "        if dry_run:\n            return reservation, plan\n",
    ),
    Mutant(
        "manager-after-term",
        "a managing organization's reach ends with the term",
        (
            (_CAPACITY, " and reservation.status == Status.ACTIVE\n", "\n"),
            (
                "reservations/api/views.py",
                '        """The reservations through which a managing organization reaches the node for this '
                'operation."""\n        return Reservation.objects.filter(active_in_term(Now()))\n',
                "        return Reservation.objects.all()\n",
            ),
        ),
    ),
    one(
        "manager-reaches-all-spot",
        "a managing organization evicts on released units only",
        "reservations/services/reclaim_spot.py",
        "hold_id__in=ids, released=True)",
        "hold_id__in=ids)",
    ),
    # Placement and life
    one(
        "oldest-preempted",
        "of spot workloads the youngest give way",
        _SELECTION,
        "for victim in sorted(sizes, key=lambda victim: (since[victim], victim), reverse=True):",
        "for victim in sorted(sizes, key=lambda victim: (since[victim], victim)):",
    ),
    one(
        "offline-node-placed",
        "nothing starts on a node that is silent",
        "compute/services/placement/decide.py",
        "    if not snapshot.heard:\n",
        "    if False:\n",
    ),
    one(
        "held-node-placed",
        "nothing starts on a node that its owner keeps from new work",
        "nodes/models/node.py",
        "return not self.owner_hold and self.removed_at is None",
        "return self.removed_at is None",
    ),
    one(
        "drain-ends-stopped",
        "draining leaves what is stopped",
        "compute/services/lifecycle/drain.py",
        ".filter(node=held.node).exclude(status=states.STOPPED)\n",
        ".filter(node=held.node)\n",
    ),
    one(
        "pods-not-resubmitted",
        "a pod that lost its job is started again",
        "compute/services/agents/pod_recovery.py",
        "and observed == Run.Observed.GONE\n",
        "and observed == Run.Observed.STOPPED\n",
    ),
    one(
        "last-key-detached",
        "a live workload keeps a key",
        "compute/services/access/attachments.py",
        "        if len(opening) == 1:\n",
        "        if len(opening) == 0:\n",
    ),
    *SHARES,
    *PEOPLE,
)
