"""Whether a text says what a VM could start from: the https address of a disk image, or a container image."""

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

from compute.domain.container_images import why_not_an_image
from openrelay.core.errors import Invalid

_HTTPS: Final = "https://"
# Names, IPv4 addresses among them, and IPv6 addresses in brackets, which `hostname` leaves out.
_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST: Final = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}\.?|[0-9a-f:]*:[0-9a-f:.]*")
# What an address is written in; anything else is percent-encoded.
_WRITTEN: Final = re.compile(r"(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*")


def require_image(image_url: object) -> None:
    """Raises Invalid (VALIDATION_ERROR) for an `imageUrl` that is neither; None is none.

    Whether there is such an image is for the node to find out, which fetches it.
    """
    if image_url is None:
        return
    text = str(image_url)
    why = _why_not_an_address(text) if "://" in text else why_not_an_image(text)
    if why:
        raise Invalid(
            f"imageUrl {why}. Give the https address of a disk image, such as "
            "https://images.example.com/ubuntu-24.04.qcow2, or a container image, such as "
            "ghcr.io/acme/server:1.4."
        )


def _why_not_an_address(text: str) -> str:
    """What is wrong with the address, as a sentence's end; empty when nothing is."""
    if not text.lower().startswith(_HTTPS):
        return "must begin with https:// where it is an address"
    if not _WRITTEN.fullmatch(text):
        return "has a character that an address has only percent-encoded"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return "is no address: its host or port is malformed"
    return _why_not_these(parts, port)


def _why_not_these(parts: SplitResult, port: int | None) -> str:
    if "@" in parts.netloc:
        return "must not have a user name or password in it: everybody in the organization would see them"
    if not _HOST.fullmatch(parts.hostname or "") or len(parts.hostname or "") > 253 or port == 0:
        return "is no address: its host or port is malformed"
    if {".", ".."}.intersection(parts.path.lower().replace("%2e", ".").split("/")):
        return "must not have . or .. as a step of its path"
    if parts.path in ("", "/"):
        return "names a host and no image there"
    if parts.fragment:
        return "must not have a # in it"
    return ""
