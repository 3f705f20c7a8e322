"""Settings of the tests: the real ones, with a clock that a test can move for every process at once."""

import os

if "DATABASE_URL" not in os.environ:
    # Tests bring their own services; the home of a running OpenRelay in this checkout is not theirs to use.
    os.environ["OPENRELAY_HOME"] = os.path.join(os.path.dirname(__file__), "..", ".pytest_cache", "home")
os.environ.setdefault("SECRET_KEY", "a-secret-for-tests-only-" + "0" * 40)
os.environ.setdefault("DATABASE_PREPARES", "true")
os.environ.setdefault("REDIS_PREFIX", "openrelay-test:")

from openrelay.settings import *  # noqa: F403

# Tests send more from one address, and by one key, than people do. Those of the limits set their own.
RATE_LIMIT_PER_MINUTE = RATE_LIMIT_PER_ADDRESS_PER_MINUTE = 0
CLOCK_SQL = "openrelay_now()"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
