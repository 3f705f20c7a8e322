"""Settings of the tests: the real ones, with a clock that a test can move for every process at once."""

import os

os.environ.setdefault("SECRET_KEY", "a-secret-for-tests-only-" + "0" * 40)

from openrelay.settings import *  # noqa: E402, F403

CLOCK_SQL = "openrelay_now()"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
