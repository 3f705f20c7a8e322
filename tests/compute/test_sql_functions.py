"""The database's functions are what the files in compute/sql say."""

import re

import pytest
from django.db import connection, transaction

from compute import sql

NAMES = sorted(path.stem for path in sql.FOLDER.glob("*.sql"))


def definition(name: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = %s", [f"compute_{name}"])
        ((text,),) = cursor.fetchall()
    return str(text)


@pytest.mark.django_db
def test_every_function_has_a_file() -> None:
    with connection.cursor() as cursor:
        cursor.execute(r"SELECT proname FROM pg_proc WHERE proname LIKE 'compute\_%'")
        functions = {name.removeprefix("compute_") for (name,) in cursor.fetchall()}
    assert functions == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.django_db
def test_the_database_has_the_function_of_the_file(name: str) -> None:
    migrated = definition(name)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql.load(name))
        assert definition(name) == migrated
        transaction.set_rollback(True)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_has_one_function_of_its_name(name: str) -> None:
    created = re.findall(r"CREATE OR REPLACE FUNCTION (\w+)", sql.load(name))
    assert created == [f"compute_{name}"]
