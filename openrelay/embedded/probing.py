"""Whether PostgreSQL, the broker and background work do anything, asked by the supervisor itself.

It does not ask the web server for it: a web server whose database hangs may not answer either.
"""

from typing import Any

import psycopg
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from openrelay.core.database.bounded import Connection, Limits

#: For how many seconds each is waited for.
PATIENCE_SECONDS = 3


def database_answers(url: str) -> bool:
    """Whether PostgreSQL answers a query. A server that refuses the connection by a message of its own, since
    it starts, or has no connection left, answers too.
    """
    return _ask_database(url, "SELECT 1") is not None


def beat_age_seconds(url: str) -> float | None:
    """How long ago a worker last did what beat sent; None when that is not known."""
    found = _ask_database(url, "SELECT extract(epoch FROM statement_timestamp() - at)::float8 FROM api_beat")
    return float(found[0]) if found else None


def broker_answers(url: str) -> bool:
    """Whether the broker answers. One that refuses by a message, since it loads its data, answers too."""
    broker = redis.Redis.from_url(
        url,
        socket_connect_timeout=PATIENCE_SECONDS,
        socket_timeout=PATIENCE_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )
    try:
        broker.ping()
    except (redis.exceptions.BusyLoadingError, redis.exceptions.AuthenticationError):
        return True
    except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
        return False
    except redis.RedisError:
        return True
    finally:
        broker.close()
    return True


def _ask_database(url: str, statement: str) -> tuple[Any, ...] | None:
    """The first row, empty where there is none or the server refused; None when nothing answered in time."""
    try:
        connection = Connection.connect(url, autocommit=True, connect_timeout=PATIENCE_SECONDS)
    except psycopg.OperationalError as error:
        return () if "FATAL" in str(error) else None
    except psycopg.Error:
        return ()  # an address that only Django understands: nothing can be told
    connection.limits = Limits(statement=PATIENCE_SECONDS)
    try:
        return connection.execute(statement).fetchone() or ()
    except psycopg.OperationalError:
        return None
    except psycopg.Error:
        return ()  # no such table yet
    finally:
        connection.close()
