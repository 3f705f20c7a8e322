"""Which characters a name and a free text may have.

A name that nobody can see, or that changes the direction of the text beside it, can be taken for another
name. So a name has none of Unicode's control, format, private and unassigned characters, no letter or mark
that shows nothing, and no space but the plain one. A free text may have line breaks and tabs too. A
zero-width joiner is kept between two characters that are not ASCII: Persian, Indic scripts and emoji need it.
"""

import argparse
import unicodedata
from typing import Final

from openrelay.core.errors import Invalid

_JOINERS: Final = frozenset("\u200c\u200d")
# Letters, marks and symbols by their category, of which nothing is seen.
_BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
_UNSEEN: Final = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"))


def fault_of_name(text: str) -> str:
    """What is wrong with a name, as the end of a sentence; empty for a good one."""
    if text and not text.strip():
        return "must not consist of spaces"
    return _fault(text, breaks=False)


def fault_of_text(text: str) -> str:
    """What is wrong with a free text of several lines, as the end of a sentence; empty for a good one."""
    return _fault(text, breaks=True)


def require_length(field: str, text: str, *, at_most: int) -> None:
    """Refuse a text of more characters than its column has. Raises Invalid (VALIDATION_ERROR)."""
    if len(text) > at_most:
        raise Invalid(f"{field} has {len(text)} characters. It must be at most {at_most} characters.")


def require_name(field: str, text: str, *, at_most: int) -> None:
    """Refuse a name that is too long, or has characters that it may not have. Raises Invalid
    (VALIDATION_ERROR).
    """
    require_length(field, text, at_most=at_most)
    if fault := fault_of_name(text):
        raise Invalid(f"{field} {fault}.")


def text_argument(text: str) -> str:
    """A free text as the type of a command's argument."""
    if fault := fault_of_text(text):
        raise argparse.ArgumentTypeError(f"the text {fault}")
    return text


def _fault(text: str, *, breaks: bool) -> str:
    if text.isascii() and text.isprintable():
        return ""
    for position, character in enumerate(text):
        if breaks and character in "\n\r\t":
            continue
        if character in _JOINERS and _joins(text, position):
            continue
        if _is_unseen(character):
            name = unicodedata.name(character, "a control character").lower()
            return (
                f"has a character that cannot be seen at position {position + 1}: "
                f"U+{ord(character):04X}, {name}. Leave it out"
            )
    return ""


def _is_unseen(character: str) -> bool:
    category = unicodedata.category(character)
    if category == "Zs":
        return character != " "
    # Variation selectors but the two that choose between text and emoji.
    variation = "\ufe00" <= character <= "\ufe0d" or "\U000e0100" <= character <= "\U000e01ef"
    return category in _UNSEEN or character in _BLANK or variation


def _joins(text: str, position: int) -> bool:
    """Whether the joiner there stands between two visible characters that are not ASCII."""
    around = text[max(0, position - 1) : position], text[position + 1 : position + 2]
    return all(one and not one.isascii() and not _is_unseen(one) for one in around)
