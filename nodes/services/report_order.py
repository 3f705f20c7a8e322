"""The order of a node's reports: by epoch, one for each start of its agent, and by sequence within it.

The server orders epochs by when it first received them. An agent that sends none is judged by sequence alone.
The host's clock decides nothing: where reports are refused as older while no other is taken, and their
sequence grows for RESTART_SECONDS, the count has started again, and they are taken.
"""

import datetime as dt
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from uuid import UUID

from django.db.models import OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce

from nodes.models import AgentEpoch, ReportOrder
from openrelay.core.clock import Now

RESTART_SECONDS: Final = 30
# An epoch that is forgotten would count as new; so many starts later no report of it is under way.
EPOCHS_KEPT: Final = 64

OLDER: Final = "it is older than one that was already taken"
PAST_EPOCH: Final = "it is of an earlier start of the agent (epoch {epoch})"
NO_EPOCH: Final = "it names no epoch, which the agent does now"
SAME_NUMBER: Final = "it has the sequence of one that was already taken, and other content"

_M = TypeVar("_M", bound=ReportOrder)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a report's place in the order is: `flag_reason` says why it does not count. Of those that do,
    `is_repeated` was taken before, and `starts_count` starts a new count.
    """

    flag_reason: str = ""
    is_repeated: bool = False
    starts_count: bool = False


def with_current_epoch(rows: "QuerySet[_M]") -> "QuerySet[_M]":
    """The orders with `current_epoch`, which the node's other reports may have begun, and `now`."""
    newest = AgentEpoch.objects.filter(node=OuterRef("pk")).order_by("-id").values("epoch")[:1]
    found: QuerySet[_M] = rows.annotate(current_epoch=Coalesce(Subquery(newest), Value("")), now=Now())
    return found


def judge_report(
    order: Any,
    *,
    last_sequence: int,
    last_content: str,
    epoch: str,
    sequence: int,
    content: str,
    at: dt.datetime,
) -> Verdict:
    """Judge a report by its place in the order; `order` is a row of `with_current_epoch`. One query at most.

    `last_sequence` and `last_content` are of the report that was taken last, `content` is a digest.
    """
    past = ""
    if epoch == order.current_epoch:
        if epoch != order.epoch:
            return Verdict(starts_count=True)  # the first report of its kind since the agent started
        if sequence > last_sequence:
            return Verdict()
        if sequence == last_sequence:
            is_repeated = content == last_content or not last_content
            return Verdict(flag_reason="" if is_repeated else SAME_NUMBER, is_repeated=is_repeated)
    elif epoch and not AgentEpoch.objects.filter(node_id=order.pk, epoch=epoch).exists():
        return Verdict(starts_count=True)
    else:
        past = PAST_EPOCH.format(epoch=epoch) if epoch else NO_EPOCH
    if _has_count_restarted(order, epoch, sequence, at):
        return Verdict(starts_count=True)
    return Verdict(flag_reason=past or OLDER)


def _has_count_restarted(order: ReportOrder, epoch: str, sequence: int, at: dt.datetime) -> bool:
    """Whether refused reports have grown for long enough while no other was taken."""
    return (
        _has_pending_flags(order, epoch)
        and sequence > (order.doubted_sequence or 0)
        and order.doubted_since is not None
        and at - order.doubted_since >= dt.timedelta(seconds=RESTART_SECONDS)
    )


def _has_pending_flags(order: ReportOrder, epoch: str) -> bool:
    """Whether a doubt about reports of that epoch stands, with no report taken since it arose."""
    return (
        order.doubted_since is not None
        and order.doubted_epoch == epoch
        and (order.last_report_at is None or order.last_report_at < order.doubted_since)
    )


def record_out_of_order_report(order: Any, *, epoch: str, sequence: int, at: dt.datetime) -> None:
    """Remember a report that was refused by its place in the order."""
    if _has_pending_flags(order, epoch):
        sequence, since = max(sequence, order.doubted_sequence or 0), order.doubted_since
    else:
        since = at
    type(order).objects.filter(pk=order.pk).update(
        doubted_epoch=epoch, doubted_sequence=sequence, doubted_since=since
    )


def begin_epoch(node_id: UUID, epoch: str, *, current: str, at: dt.datetime) -> None:
    """Make `epoch` the node's current one, under its lock; a report that begins a count calls it."""
    if epoch == current:
        return
    epochs = AgentEpoch.objects.filter(node_id=node_id)
    epochs.filter(epoch=epoch).delete()
    AgentEpoch.objects.create(node_id=node_id, epoch=epoch, began_at=at)
    kept = epochs.order_by("-id").values("pk")[:EPOCHS_KEPT]
    epochs.exclude(pk__in=kept).delete()


def clear_epochs(node_id: UUID) -> dict[str, Any]:
    """Forget the node's epochs, under its lock; returns the values of a ReportOrder without a past."""
    AgentEpoch.objects.filter(node_id=node_id).delete()
    return {
        "epoch": "",
        "last_report_at": None,
        "doubted_epoch": "",
        "doubted_sequence": None,
        "doubted_since": None,
    }
