"""What a decision on a reservation would do, in words, before it is made."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from openrelay.core.clock import rfc3339
from openrelay.identity.models import Organization
from reservations.services.review import Change, Review, Row, User


def of_reaffirming(review: Review) -> list[str]:
    """What re-affirming would do, a sentence an effect. `Review.obstacles` says whether it can be done."""
    told = [
        f"The reservation is pinned to topology generation {review.node.topology_gen}, as shown here"
        + (", and is active again at once." if review.begun else f"; it begins {_when(review)}.")
    ]
    for row in review.reserved:
        if row.compared.change is Change.CHANGED:
            told.append(f"{row.address} counts as it is now: {', '.join(row.compared.differences)}.")
    kept = [row for row in review.reserved if not row.released]
    released = [row for row in review.reserved if row.released]
    since = "from then on" if not review.begun else "from now on"
    if kept:
        told.append(f"{_names(review.audience)} may place on {_units(kept)} {since}.")
    if released:
        told.append(
            f"{_units(released)}: back on the spot market {since}, with spot workloads to be preempted."
        )
    new = [row for row in review.rows if row.compared.change is Change.NEW]
    if new:
        told.append(f"{_units(new)}: new on the node, and not part of the reservation.")
    return [*told, *_unusable(review.reserved), *_keep_running(review.users), *_node(review)]


def of_cancelling(review: Review) -> list[str]:
    """What cancelling would do, a sentence an effect."""
    if not review.begun:
        told = [f"The reservation never begins; it was to begin {_when(review)}.", _from_then(review)]
    else:
        told = ["The reservation ends now, for good.", *_freed(review)]
    return [*told, *_keep_running(review.users), *_node(review)]


def of_audience(
    review: Review, added: Collection[Organization], removed: Collection[Organization]
) -> list[str]:
    """What adding and removing organizations of the audience would do, a sentence an effect."""
    told = []
    if added:
        told.append(f"{_names(added)} may place on {_units(review.reserved)} {_granted(review)}.")
    if removed:
        told.append(f"{_names(removed)} may no longer place on {_units(review.reserved)}, from now on.")
    gone = {org.pk for org in removed}
    leaving = [user for user in review.users if user.workload.organization_id in gone and not user.draining]
    for user in leaving:
        told.append(
            f"{_workload(user)} keeps running; once it stops, only the audience places on "
            f"{', '.join(user.addresses)} again."
        )
    stay = [org for org in review.audience if org.pk not in gone]
    audience = sorted([*stay, *added], key=lambda org: (org.is_platform_ops, org.name))
    told.append(f"The audience is then {_names(audience)}.")
    if review.in_review:
        told.append(
            "The reservation still needs review: until it is re-affirmed it grants nothing to anyone."
        )
    return told


def of_ending(review: Review, ends_at: datetime | None) -> list[str]:
    """What another end would do, a sentence an effect; None is an open end."""
    was = review.reservation.ends_at
    before = f"It was to end {rfc3339(was)}." if was else "It had no end."
    if ends_at is None:
        return [
            f"The reservation has no end any more. {before}",
            f"{_units(review.reserved)} stay kept for {_names(review.audience)} until somebody ends it.",
            *_still_in_review(review),
        ]
    told = [f"The reservation ends {rfc3339(ends_at)}. {before}"]
    present = [row for row in review.reserved if row.present]
    if present:
        told.append(
            f"{_units(present)} become free to the public then; where a workload still runs at that moment, "
            "once it stops."
        )
    if review.users:
        told.append("Workloads that run at that moment keep running.")
    return [*told, *_still_in_review(review)]


def _still_in_review(review: Review) -> list[str]:
    if not review.in_review:
        return []
    return [
        "The reservation still needs review: until it is re-affirmed it withholds its units from everyone."
    ]


def _freed(review: Review) -> list[str]:
    told = []
    free = [row for row in review.reserved if row.free]
    if free:
        told.append(
            f"{_units(free)} become free to the public now."
            if len(free) > 1
            else f"{free[0].address} becomes free to the public now."
        )
    later = [row for row in review.reserved if row.users and row.present and not row.unusable]
    if later:
        told.append(f"{_units(later)}: free to the public once what runs there has stopped.")
    return [*told, *_unusable(review.reserved)]


def _from_then(review: Review) -> str:
    return f"{_units(review.reserved)} are no longer kept from the public from then on."


def _unusable(rows: Iterable[Row]) -> list[str]:
    told = []
    for row in rows:
        if not row.present:
            told.append(f"{row.address} is gone from the node; nobody can place there.")
        elif row.unusable:
            told.append(f"{row.address} stays unusable: {row.unusable}.")
    return told


def _keep_running(users: Sequence[User]) -> list[str]:
    running = [user for user in users if not user.draining]
    if not running:
        return ["No workload runs on its units; none is stopped."]
    ours = sum(user.in_audience for user in running)
    others = len(running) - ours
    parts = []
    if ours:
        parts.append(f"{_count(ours, 'workload')} of the audience")
    if others:
        parts.append(f"{_count(others, 'workload')} of other orgs")
    keep = "keeps" if len(running) == 1 else "keep"
    return [f"{' and '.join(parts)} {keep} running; nothing is stopped."]


def _node(review: Review) -> list[str]:
    if review.node.removed_at is not None:
        return ["The node was removed: nobody can place there."]
    if not review.online:
        return ["The node is offline: until it is heard from again, nobody can place there."]
    if not review.node.takes_new_work:
        return ["The node takes no new work at its owner's wish, so nobody can place there for now."]
    return []


def _granted(review: Review) -> str:
    if review.in_review:
        return "once the reservation is re-affirmed"
    return "from now on" if review.begun else f"from its start, {_when(review)}"


def _when(review: Review) -> str:
    return rfc3339(review.reservation.starts_at)


def _units(rows: Iterable[Row]) -> str:
    return _and([row.address for row in rows])


def _names(organizations: Iterable[Organization]) -> str:
    return _and([org.name for org in organizations])


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _workload(user: User) -> str:
    return f"{user.workload.name} of {user.workload.organization.name}"
