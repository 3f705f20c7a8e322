"""The published client, loaded under a name of its own: it imports as `openrelay`, as this server does."""

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

NAME = "openrelay_sdk"


def folder() -> Path:
    """Where the client is unpacked: OPENRELAY_SDK, else beside the packages of this environment."""
    return Path(os.environ.get("OPENRELAY_SDK") or Path(sys.prefix) / "openrelay-sdk") / "openrelay"


def load() -> ModuleType:
    """The client as the module `openrelay_sdk`; its relative imports keep it apart from this package.

    Raises RuntimeError when it is not installed.
    """
    if NAME in sys.modules:
        return sys.modules[NAME]
    path = folder()
    if not (path / "__init__.py").is_file():
        raise RuntimeError(f"The published client is not at {path}. `make venv-sdk` installs it.")
    spec = importlib.util.spec_from_file_location(
        NAME, path / "__init__.py", submodule_search_locations=[str(path)]
    )
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{path} is not a package that can be loaded.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)
    return module
