"""Time travel: the clock of the test database, moved for every process and open session at once."""

import datetime as dt
from typing import Any

from django.db import connection

# ALTER DATABASE … SET reaches new sessions only, so the function reads the catalogue instead.
FUNCTION = r"""
CREATE OR REPLACE FUNCTION openrelay_now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT coalesce(
    max(substring(s FROM '^openrelay\.clock_at=(.+)$'))::timestamptz,
    statement_timestamp() + coalesce(max(substring(s FROM '^openrelay\.clock_offset=(.+)$')), '0')::interval
  )
  FROM pg_catalog.pg_database d
  JOIN pg_catalog.pg_db_role_setting r ON r.setdatabase = d.oid AND r.setrole = 0,
  LATERAL unnest(r.setconfig) s
  WHERE d.datname = current_database()
$$
"""


def install(using: str = "default", **_kwargs: Any) -> None:
    """Put openrelay_now() into the test database, before the migrations that may name it."""
    with connection.cursor() as cursor:
        cursor.execute(FUNCTION)


class Clock:
    """Moves the time that every process on the test database reads."""

    def now(self) -> dt.datetime:
        """The time as the application reads it."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT openrelay_now()")
            return cursor.fetchone()[0]

    def set(self, at: dt.datetime) -> None:
        """Make it `at` now; time runs on from there."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT extract(epoch FROM %s - statement_timestamp())::text || ' seconds'", [at])
            offset = cursor.fetchone()[0]
        self._write(offset=offset)

    def advance(self, seconds: float) -> None:
        """Move `seconds` on (or back, when negative); a frozen clock stays frozen, at the new time."""
        self._read()
        if self.frozen_at:
            self.freeze(self.frozen_at + dt.timedelta(seconds=seconds))
            return
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT (%s::interval + %s)::text", [self.offset or "0", dt.timedelta(seconds=seconds)]
            )
            offset = cursor.fetchone()[0]
        self._write(offset=offset)

    def freeze(self, at: dt.datetime | None = None) -> dt.datetime:
        """Stop the clock at `at`, to the microsecond, or where it stands; returns that time."""
        at = at or self.now()
        self._write(at=at.astimezone(dt.UTC).isoformat())
        return at

    def reset(self) -> None:
        """The real time again."""
        self._write()

    def _read(self) -> None:
        self.frozen_at: dt.datetime | None = None
        self.offset: str | None = None
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT s FROM pg_db_role_setting r JOIN pg_database d ON d.oid = r.setdatabase, "
                "unnest(r.setconfig) s WHERE d.datname = current_database() AND r.setrole = 0"
            )
            for (setting,) in cursor.fetchall():
                name, _, value = setting.partition("=")
                if name == "openrelay.clock_at":
                    self.frozen_at = dt.datetime.fromisoformat(value)
                elif name == "openrelay.clock_offset":
                    self.offset = value

    def _write(self, *, offset: str | None = None, at: str | None = None) -> None:
        database = connection.ops.quote_name(connection.settings_dict["NAME"])
        with connection.cursor() as cursor:
            for name, value in (("clock_offset", offset), ("clock_at", at)):
                if value is None:
                    cursor.execute(f"ALTER DATABASE {database} RESET openrelay.{name}")
                else:
                    cursor.execute(f"ALTER DATABASE {database} SET openrelay.{name} = '{value}'")
