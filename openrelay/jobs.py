"""Background work, named rather than imported, and queued only once the transaction has committed.

The broker only wakes work up: every task finds what is due in the database. So a broker that is down costs
a request nothing, and the next sweep does what the lost message would have done.
"""

import datetime as dt
import functools
import logging
from typing import Any

from celery import Celery
from django.conf import settings
from django.db import transaction

log = logging.getLogger(__name__)


def on_commit(task: str, *args: Any, eta: dt.datetime | None = None) -> None:
    """Queue the task named `task` ("compute.tear_down") when the current transaction commits."""
    transaction.on_commit(lambda: _send(task, args, eta), robust=True)


@functools.cache
def _sender() -> Celery:
    """An application that only sends, and tries once: nobody's request waits for a broker to come back."""
    sender = Celery("openrelay-sender", set_as_current=False)
    sender.config_from_object("django.conf:settings", namespace="CELERY")
    sender.conf.broker_transport_options = {**settings.CELERY_BROKER_TRANSPORT_OPTIONS, "max_retries": 0}
    return sender


def _send(task: str, args: tuple[Any, ...], eta: dt.datetime | None) -> None:
    try:
        _sender().send_task(task, args=args, eta=eta, retry=False)
    except Exception as error:  # whatever the transport raises: the sweep is the net under all of it
        log.warning("could not queue %s: %s; the next sweep will do it", task, error)
