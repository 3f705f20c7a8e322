"""PostgreSQL and Valkey of a test run's own, when the environment names none."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from celery import current_app
from django.conf import settings

from openrelay.embedded.children import Children
from openrelay.embedded.home import Home
from openrelay.embedded.postgres import Postgres
from openrelay.embedded.valkey import Valkey

PREFIX = "openrelay-tests-"


@contextmanager
def running() -> Iterator[None]:
    """Start what DATABASE_URL and REDIS_URL do not name, and point settings and environment to it."""
    if "DATABASE_URL" in os.environ and "REDIS_URL" in os.environ:
        yield
        return
    with started() as (database_url, redis_url):
        if "DATABASE_URL" not in os.environ:
            _use_database(database_url)
        if "REDIS_URL" not in os.environ:
            _use_broker(redis_url)
        yield


@contextmanager
def started() -> Iterator[tuple[str, str]]:
    """A PostgreSQL and a Valkey of one's own, by their URLs, the first as its superuser."""
    for stray in Home.strays():
        if stray.name.startswith(PREFIX):  # of a run that was killed
            shutil.rmtree(stray)
    home = Home(Path(tempfile.mkdtemp(prefix=PREFIX)))
    children = Children(home, print)
    try:
        place = home.place()
        postgres, valkey = Postgres(home, place, careless=True), Valkey(home, place)
        children.add(postgres.prepare())
        children.add(valkey.prepare())
        postgres.open()
        valkey.open()
        yield postgres.admin_url, valkey.url
    finally:
        children.stop(lambda: False)
        home.destroy()


def _use_database(url: str) -> None:
    parts = urlsplit(url)
    # In place: the connections are made from this very dictionary.
    settings.DATABASES["default"].update(
        HOST=parts.hostname,
        PORT=str(parts.port),
        USER=parts.username,
        PASSWORD=parts.password,
        NAME="openrelay",
    )


def _use_broker(url: str) -> None:
    settings.REDIS_URL = settings.CELERY_BROKER_URL = url
    current_app.conf.broker_url = url
