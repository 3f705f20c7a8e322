"""What a planted fault is."""

from dataclasses import dataclass

Edit = tuple[str, str, str]  # path, text, what is there instead


@dataclass(frozen=True)
class Mutant:
    """A fault: its name, the promise that it breaks, and the edits that plant it."""

    name: str
    promise: str
    edits: tuple[Edit, ...]


def one(name: str, promise: str, path: str, text: str, instead: str) -> Mutant:
    """A fault of one edit."""
    return Mutant(name, promise, ((path, text, instead),))
