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

from openrelay.core.circuit_breaker import valkey

log = logging.getLogger(__name__)


def on_commit(task: str, *args: Any, eta: dt.datetime | None = None) -> None:
    """Queue the task named `task` ("compute.tear_down") when the current transaction commits."""
    transaction.on_commit(lambda: _send(task, args, eta), robust=True)


class _Broker:
    """Sends, and tries once: nobody's request waits for a broker to come back.

    One that failed is left alone for a moment, so that few messages wait for its silence.
    """

    SILENCE_SECONDS = 0.5

    @functools.cached_property
    def app(self) -> Celery:
        """An application that only sends."""
        app = Celery("openrelay-sender", set_as_current=False)
        app.config_from_object("django.conf:settings", namespace="CELERY")
        app.conf.broker_transport_options = {
            **settings.CELERY_BROKER_TRANSPORT_OPTIONS,
            "max_retries": 0,
            "socket_timeout": self.SILENCE_SECONDS,
            "socket_connect_timeout": self.SILENCE_SECONDS,
        }
        return app

    def send(self, task: str, args: tuple[Any, ...], eta: dt.datetime | None) -> None:
        """Queue a task, or leave it to the next sweep."""
        if not valkey.allows():
            return
        try:
            self.app.send_task(task, args=args, eta=eta, retry=False)
        except Exception as error:  # whatever the transport raises: the sweep is the net under all of it
            valkey.failed()
            log.warning("could not queue %s: %s; the next sweep will do it", task, error)
        else:
            valkey.succeeded()


_broker = _Broker()


def _send(task: str, args: tuple[Any, ...], eta: dt.datetime | None) -> None:
    _broker.send(task, args, eta)
