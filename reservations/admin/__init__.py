"""The console's pages of reservations: lists, the queue of what needs review, the review screen."""

from reservations.admin.lists import AnnouncementAdmin, ReservationAdmin, ReservationManagerAdmin
from reservations.admin.overview import needs_review_badge, overview

__all__ = [
    "AnnouncementAdmin",
    "ReservationAdmin",
    "ReservationManagerAdmin",
    "needs_review_badge",
    "overview",
]
