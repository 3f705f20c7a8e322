"""What the clock calls for: announcements. Each task is safe to run twice or late."""

import logging
from uuid import UUID

from celery import shared_task

from openrelay.core import clock
from openrelay.core.errors import TryAgain
from reservations.services import announcing

log = logging.getLogger(__name__)


@shared_task(name="reservations.announce", throws=(TryAgain,))
def announce(reservation_id: str) -> None:
    """Announce what is due of one reservation."""
    announcing.announce_due(UUID(reservation_id))


@shared_task(name="reservations.announce_all_due")
def announce_all_due() -> None:
    """Announce whatever is due of any reservation, each in a transaction of its own."""
    for reservation_id in announcing.due(clock.read()):
        try:
            announcing.announce_due(reservation_id)
        except TryAgain as busy:
            log.warning("reservation %s is left to the next sweep: %s", reservation_id, busy)
        except Exception:  # one that cannot be announced must not keep the rest silent
            log.exception("reservation %s could not be announced; the next sweep tries again", reservation_id)


@shared_task(name="reservations.arm_moments")
def arm_moments() -> None:
    """Queue an announcement at the exact start and end of every term that begins or ends soon."""
    for reservation_id, moment in announcing.near_moments(clock.read()):
        announce.apply_async(args=(str(reservation_id),), eta=moment, retry=False)
