"""One whole OpenRelay for the crash tests."""

from collections.abc import Iterator

import pytest

from tests.chaos.running import Whole, living


@pytest.fixture(scope="package")
def whole() -> Iterator[Whole]:
    """OpenRelay as `make up` starts it, from an empty home and an almost empty environment."""
    with living(Whole) as whole:
        yield whole
