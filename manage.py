#!/usr/bin/env python
"""Run one of OpenRelay's management commands."""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "openrelay.settings")
    os.environ["OPENRELAY_PROCESS"] = "command"
    execute_from_command_line(sys.argv)
