"""`python -m openrelay.web`: serve OpenRelay at `WEB_HOST` and `PORT`."""

import sys

from openrelay.web.parent import main

if __name__ == "__main__":
    sys.exit(main())
