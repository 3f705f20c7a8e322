"""Emptying the test database between tests that commit: only what is dirty, in one round trip."""

from django.db import connection

# Written by migrate itself and by nothing else.
KEPT = {"django_migrations", "django_content_type", "auth_permission"}
# The tables that migrations filled have their first rows kept here and put back.
INITIAL = "openrelay_test_initial"
# Under this many rows DELETE beats TRUNCATE, which makes new files for the table and each of its indexes.
FEW = 500

_tables: list[str] = []
_initial: list[str] = []


def _names() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = 'public' AND c.relkind = 'r' ORDER BY 1"
        )
        return [name for (name,) in cursor.fetchall() if name not in KEPT]


def _counts(tables: list[str]) -> dict[str, int]:
    """How many rows each table has, counted up to FEW + 1."""
    if not tables:
        return {}
    one = "SELECT '{0}', count(*) FROM (SELECT 1 FROM public.\"{0}\" LIMIT {1}) t"
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(one.format(table, FEW + 1) for table in tables))
        return dict(cursor.fetchall())


def remember() -> None:
    """Keep what the migrations put into the fresh database, for `flush` to restore."""
    _tables[:] = _names()
    _initial[:] = [table for table, rows in _counts(_tables).items() if rows]
    with connection.cursor() as cursor:
        cursor.execute(f"DROP SCHEMA IF EXISTS {INITIAL} CASCADE; CREATE SCHEMA {INITIAL}")
        for table in _initial:
            cursor.execute(f'CREATE TABLE {INITIAL}."{table}" AS TABLE public."{table}"')


def flush() -> None:
    """The database as the migrations left it.

    Runs with replication triggers only, which takes the append-only guard of the audit log and the order of
    foreign keys out of the way; that needs a superuser, which the role of a test server is.
    """
    dirty = {table: rows for table, rows in _counts(_tables).items() if rows}
    if not dirty:
        return
    many = [f'public."{table}"' for table, rows in dirty.items() if rows > FEW]
    steps = ["SET LOCAL lock_timeout = '20s'", "SET LOCAL session_replication_role = replica"]
    if many:
        # CASCADE may reach further tables; what refers to an emptied table is dirty or empty anyway.
        steps.append(f"TRUNCATE {', '.join(many)} CASCADE")
    steps += [f'DELETE FROM public."{table}"' for table, rows in dirty.items() if rows <= FEW]
    for table in _initial:
        steps.append(f'INSERT INTO public."{table}" SELECT * FROM {INITIAL}."{table}" ON CONFLICT DO NOTHING')
    with connection.cursor() as cursor:
        cursor.execute("BEGIN; " + "; ".join(steps) + "; COMMIT")
