"""The functions that compute has in the database, one file a function. Migrations load them.

The files are the source: to change a function, change its file and add a migration that loads it again.
"""

from pathlib import Path

FOLDER = Path(__file__).parent


def load(name: str) -> str:
    """The statement that creates or replaces the function `compute_<name>`."""
    return (FOLDER / f"{name}.sql").read_text(encoding="utf-8")
