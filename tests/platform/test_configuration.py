"""Settings: safe unless told otherwise, and what is wrong is said with its mend."""

import os
import subprocess
import sys

import pytest

from tests.support.web import ROOT

PRINT = "from django.conf import settings; print({})"


def run(expression="settings.DEBUG", **env):
    return subprocess.run(
        [sys.executable, "-c", PRINT.format(expression)],
        cwd=ROOT,
        env={"PATH": os.defpath, "DJANGO_SETTINGS_MODULE": "openrelay.settings", **env},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def empty_home(tmp_path):
    return {"OPENRELAY_HOME": str(tmp_path)}


def test_a_missing_secret_is_a_start_up_error_with_its_mend(empty_home):
    done = run(**empty_home)
    assert done.returncode != 0
    assert "SECRET_KEY is not set" in done.stderr
    assert "make up" in done.stderr


def test_a_wildcard_host_is_a_start_up_error_with_its_mend(empty_home):
    done = run(SECRET_KEY="x" * 50, ALLOWED_HOSTS="gpu.example.com,*", **empty_home)
    assert done.returncode != 0
    assert "ALLOWED_HOSTS is a wildcard" in done.stderr


def test_debug_needs_neither_and_is_off_by_default(empty_home):
    assert run(SECRET_KEY="x" * 50, **empty_home).stdout.strip() == "False"
    assert run(DEBUG="true", ALLOWED_HOSTS="*", **empty_home).stdout.strip() == "True"


def test_commands_beside_a_home_find_what_it_runs_on(tmp_path):
    (tmp_path / "run.env").write_text(
        "DATABASE_URL='postgres://openrelay:pw@127.0.0.1:15999/openrelay'\nREDIS_URL='redis://:pw@127.0.0.1:1/0'\n"
        "SECRET_KEY='a-secret-of-the-home'\nPORT='8123'\nBASE_URL='http://127.0.0.1:8123'\n"
    )
    expression = "settings.DATABASES['default']['PORT'], settings.SECRET_KEY, settings.BASE_URL"
    done = run(expression, OPENRELAY_HOME=str(tmp_path))
    assert done.stdout.strip() == "15999 a-secret-of-the-home http://127.0.0.1:8123", done.stderr
    # Another database named outright is a deployment of its own: nothing of the home is mixed into it.
    done = run(
        expression, OPENRELAY_HOME=str(tmp_path), DATABASE_URL="postgres://a@b:1/c", SECRET_KEY="other"
    )
    assert done.stdout.strip() == "1 other http://127.0.0.1:8000", done.stderr


def test_a_pool_keeps_the_options_of_the_database_url(empty_home):
    done = run(
        "[settings.DATABASES['default']['OPTIONS'][name] for name in ('sslmode', 'connect_timeout')], "
        "settings.DATABASES['default']['OPTIONS']['pool']['max_size']",
        SECRET_KEY="x" * 50,
        DATABASE_POOL_SIZE="4",
        DATABASE_URL="postgres://a:b@db:5432/c?sslmode=verify-full&connect_timeout=3",
        **empty_home,
    )
    assert done.stdout.strip() == "['verify-full', 3] 4", done.stderr
