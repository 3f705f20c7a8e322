"""One whole OpenRelay for the crash tests."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from openrelay.embedded.home import Home
from tests.chaos.running import Whole


@pytest.fixture(scope="package")
def whole() -> Iterator[Whole]:
    """OpenRelay as `make up` starts it, from an empty home and an almost empty environment."""
    folder = Path(tempfile.mkdtemp(prefix="openrelay-chaos-"))
    whole = Whole(folder / "home")
    try:
        whole.start()
        yield whole
    finally:
        whole.stop()
        Home(whole.home).destroy()
        shutil.rmtree(folder)
