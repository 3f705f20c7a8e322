"""Running a management command: its help needs no installation, and what it lacks is one sentence."""

import os
import sys
from typing import NoReturn

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.db import DataError, IntegrityError, InterfaceError, OperationalError, ProgrammingError

from openrelay.core.errors import ApiError

#: What is missing from a database that was not migrated, by the code of PostgreSQL's error.
_UNMIGRATED = {
    "42P01": "The database has no tables yet. Run manage.py prepare.",
    "42703": "The database's tables are of an earlier version. Run manage.py prepare.",
}
#: Django's own commands that would change people without a service, and what to run instead.
_REPLACED = {
    "createsuperuser": "There are no superusers here. Make a person by `manage.py create_user EMAIL`, and "
    "an operator of them by `manage.py add_member`.",
    "changepassword": "Use `manage.py set_password EMAIL`, which ends the person's sessions and notes it.",
}


def main(argv: list[str]) -> None:
    """Run the command in `argv`. A failure that has a cause outside the code ends it with one sentence."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "openrelay.settings")
    os.environ["OPENRELAY_PROCESS"] = "command"
    name, asks_help = argv[1] if len(argv) > 1 else "help", {"-h", "--help"} & set(argv[1:])
    if name == "help" or asks_help:
        # Help reads nothing, so it needs no secret; whatever is set stays.
        os.environ.setdefault("SECRET_KEY", "help-needs-no-secret-" + "0" * 40)
    elif name in _REPLACED:
        _fail(_REPLACED[name], code=2)
    try:
        execute_from_command_line(argv)
    except ImproperlyConfigured as error:
        _fail(str(error))
    except (OperationalError, InterfaceError) as error:
        _fail(_database_sentence(error))
    except (DataError, IntegrityError) as error:
        _fail(f"The database refused a value: {_reason_of(error)}.")
    except ProgrammingError as error:
        sentence = _UNMIGRATED.get(getattr(error.__cause__, "sqlstate", None) or "")
        if sentence is None:
            raise
        _fail(sentence)
    except ApiError as error:
        _fail(error.message)
    except EOFError:
        _fail(
            "There is no terminal to ask. Give what is asked for as an option or by the environment; see "
            "--help."
        )
    except KeyboardInterrupt:
        _fail("Interrupted.", code=130)


def _database_sentence(error: Exception) -> str:
    reason = _reason_of(error)
    if getattr(error.__cause__, "sqlstate", None) is not None:
        return f"The database refused: {reason}."
    database = settings.DATABASES["default"]
    return (
        f"The database at {database['HOST'] or 'localhost'}:{database['PORT'] or 5432}/{database['NAME']} "
        f"cannot be reached: {reason}. Check DATABASE_URL and that the database runs; `make up` starts one."
    )


def _reason_of(error: Exception) -> str:
    # psycopg lists each attempt on a line of its own; the first one tells the cause.
    lines = str(error).strip().splitlines() or ["no reason given"]
    return lines[0].strip().rstrip(".")


def _fail(sentence: str, *, code: int = 1) -> NoReturn:
    print(sentence, file=sys.stderr)
    sys.exit(code)
