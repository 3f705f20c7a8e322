"""Contracts: reservations, who manages them, and what was announced of them."""

from reservations.models.announcement import Announcement
from reservations.models.reservation import Reservation, ReservationManager

__all__ = ["Announcement", "Reservation", "ReservationManager"]
