"""Whether a text has the form of a container image's reference: `[host[:port]/]path[:tag][@digest]`. Pure."""

import re
from typing import Final

MAX_REFERENCE: Final = 1024
MAX_NAME: Final = 255

_HOST = re.compile(
    r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
    r"(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
)
_PART = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}")
_LENGTHS = {"sha256": 64, "sha384": 96, "sha512": 128}
# What alone would read as a digest without its algorithm.
_BARE_DIGEST = re.compile(r"[0-9a-f]{64}")


def why_not_an_image(reference: str) -> str:
    """What is wrong with the reference, as a sentence's end; empty when it has the form of one.

    Whether there is such an image is for the registry to say.
    """
    if len(reference) > MAX_REFERENCE:
        return f"is longer than {MAX_REFERENCE} characters"
    if "://" in reference:
        return "must not begin with a scheme such as https://"
    rest, at, digest = reference.partition("@")
    if at and not _is_digest(digest):
        return "has no digest after the @, such as sha256 and its 64 hexadecimal digits"
    # A colon after the last slash is the tag's; one before is a port's.
    name, colon, tag = rest.rpartition(":")
    if not colon or "/" in tag:
        name, colon, tag = rest, "", ""
    if colon and not _TAG.fullmatch(tag):
        return "has a tag that is none: letters, digits, dots, dashes and underscores, at most 128"
    if not name:
        return "has no name"
    if len(name) > MAX_NAME:
        return f"has a name longer than {MAX_NAME} characters"
    first, slash, path = name.partition("/")
    host = bool(slash) and ("." in first or ":" in first or first == "localhost" or first != first.lower())
    if host and not _HOST.fullmatch(first):
        return "begins with a registry that is no host name"
    if not host:
        path = name
    if not all(_PART.fullmatch(part) for part in path.split("/")):
        return (
            "must name its repository in lower-case letters and digits, with single dots, underscores or "
            "dashes between them"
        )
    if not host and not slash and _BARE_DIGEST.fullmatch(path):
        return "is a digest without a name"
    return ""


def _is_digest(text: str) -> bool:
    if not _DIGEST.fullmatch(text):
        return False
    algorithm, _, value = text.partition(":")
    known = _LENGTHS.get(algorithm)
    return known is None or (len(value) == known and value == value.lower())
