"""`python -m openrelay.embedded`: what `make up` runs."""

import sys

from openrelay.embedded.supervisor import main

if __name__ == "__main__":
    sys.exit(main())
