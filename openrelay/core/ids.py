"""Identifiers: UUIDv7, so that rows made later sort later and indexes grow at one end."""

import uuid

import uuid_utils.compat


def new_id() -> uuid.UUID:
    """A new UUIDv7."""
    return uuid_utils.compat.uuid7()


def parse_id(text: object) -> uuid.UUID | None:
    """The UUID that `text` spells in its canonical form, or None: other spellings name nothing."""
    if not isinstance(text, str) or len(text) != 36:
        return None
    try:
        value = uuid.UUID(text)
    except ValueError:
        return None
    return value if str(value) == text else None
