"""The real settings, with the bare views that OpenRelay's own are compared with."""

from openrelay.settings import *  # noqa: F403

ROOT_URLCONF = "bench.urls"
