"""The order of a node's reports: by epoch (one for each start of its agent), then by sequence within the
epoch.

The server orders epochs by the time it first received them. Reports without an epoch are ordered by sequence
alone. The host's clock plays no part. An agent without epochs may restart its sequence at a lower number. The
server detects this: if it takes no report for RESTART_SECONDS while the sequence of the out-of-order reports
grows, it takes them from then on.
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
# A report of a deleted epoch would count as new. After so many later starts, none can still be in transit.
EPOCHS_KEPT: Final = 64

OLDER: Final = "it is older than a report that was already taken"
PAST_EPOCH: Final = "it is of an earlier start of the agent (epoch {epoch})"
NO_EPOCH: Final = "it has no epoch, but the node's agent sends one"
SAME_NUMBER: Final = "it has the sequence of a report that was already taken, but other content"

_M = TypeVar("_M", bound=ReportOrder)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of `judge_report`.

    `flag_reason` says why the report is out of order; it is empty for a report that is in order.
    `is_repeated` is true if the same report was taken before. `starts_count` is true if the report starts a
    new sequence.
    """

    flag_reason: str = ""
    is_repeated: bool = False
    starts_count: bool = False


def with_current_epoch(rows: "QuerySet[_M]") -> "QuerySet[_M]":
    """Annotate report orders with the node's `current_epoch` and `now`.

    Another kind of report of the node may have started that epoch.
    """
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
    """Decide whether a report is in order. Runs one query at most.

    `order` is a row of `with_current_epoch`. `last_sequence` and `last_content` belong to the last report
    that was taken. `content` and `last_content` are digests.
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
    """Whether the sequence of out-of-order reports has grown for RESTART_SECONDS with no report taken."""
    return (
        _has_pending_flags(order, epoch)
        and sequence > (order.doubted_sequence or 0)
        and order.doubted_since is not None
        and at - order.doubted_since >= dt.timedelta(seconds=RESTART_SECONDS)
    )


def _has_pending_flags(order: ReportOrder, epoch: str) -> bool:
    """Whether reports of `epoch` are out of order and no report was taken since the first of them."""
    return (
        order.doubted_since is not None
        and order.doubted_epoch == epoch
        and (order.last_report_at is None or order.last_report_at < order.doubted_since)
    )


def record_out_of_order_report(order: Any, *, epoch: str, sequence: int, at: dt.datetime) -> None:
    """Save the epoch and sequence of an out-of-order report, for `_has_count_restarted`."""
    if _has_pending_flags(order, epoch):
        sequence, since = max(sequence, order.doubted_sequence or 0), order.doubted_since
    else:
        since = at
    type(order).objects.filter(pk=order.pk).update(
        doubted_epoch=epoch, doubted_sequence=sequence, doubted_since=since
    )


def begin_epoch(node_id: UUID, epoch: str, *, current: str, at: dt.datetime) -> None:
    """Make `epoch` the node's current epoch, for a report that starts a count. Needs the node's lock."""
    if epoch == current:
        return
    epochs = AgentEpoch.objects.filter(node_id=node_id)
    epochs.filter(epoch=epoch).delete()
    AgentEpoch.objects.create(node_id=node_id, epoch=epoch, began_at=at)
    kept_ids = epochs.order_by("-id").values("pk")[:EPOCHS_KEPT]
    epochs.exclude(pk__in=kept_ids).delete()


def clear_epochs(node_id: UUID) -> dict[str, Any]:
    """Delete the node's epochs, under its lock. Returns the initial field values of a ReportOrder."""
    AgentEpoch.objects.filter(node_id=node_id).delete()
    return {
        "epoch": "",
        "last_report_at": None,
        "doubted_epoch": "",
        "doubted_sequence": None,
        "doubted_since": None,
    }
