#!/usr/bin/env python
"""Run one of OpenRelay's management commands."""

import sys

from openrelay.commands import main

if __name__ == "__main__":
    main(sys.argv)
