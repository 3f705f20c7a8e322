"""The canonical forms of identities: one name for one thing, whoever spells it.

Every entrance (agent reports, the fleet file, the API, the console, commands) brings what it reads to the
form here before it compares or stores it. Each function returns the canonical form, or None for text that is
no spelling of such an identity. Case and surrounding white space do not count. The patterns are the canonical
forms for PostgreSQL's check constraints.
"""

import argparse
import ipaddress
import re
import uuid
from typing import Final

PCI_ADDRESS_PATTERN: Final = r"^([0-9a-f]{4}|[1-9a-f][0-9a-f]{4,7}):[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$"
HOST_NAME_PATTERN: Final = r"^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$"
SLUG_PATTERN: Final = r"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$"

PCI_ADDRESS_FORM: Final = "a PCI address of the form dddd:bb:dd.f, for example 0000:05:00.0"
HOST_NAME_FORM: Final = "a host name of letters, digits, '-', '_' and dots, for example gpu-07.example.net"
SLUG_FORM: Final = "lower-case letters, digits, '-', '_' and dots, for example nvidia-h100-sxm5-80gb"
NETWORK_FORM: Final = "an address range such as 203.0.113.0/24"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_PCI_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[01][0-9a-f]\.[0-7])")
_HOST_NAME = re.compile(HOST_NAME_PATTERN.replace("$", r"\Z"))
_SLUG = re.compile(SLUG_PATTERN.replace("$", r"\Z"))
_MANUFACTURERS: Final = {name.casefold(): name for name in ("NVIDIA", "AMD", "Intel")}
_MOST_LABEL: Final = 63
_MOST_HOST_NAME: Final = 253
_MAPPED_BITS: Final = 96


def pci_address(text: str) -> str | None:
    """The address as Linux names it: `0000:05:00.0`, a domain above ffff with five digits or more.

    Takes what tools print: the eight-digit domain of nvidia-smi (`00000000:05:00.0`), lspci's form without a
    domain (`05:00.0`, of domain 0000), and capitals.
    """
    match = _PCI_ADDRESS.fullmatch(_folded(text))
    return f"{int(match[1] or '0', 16):04x}:{match[2]}" if match else None


def host_name(text: str) -> str | None:
    """The host name without the dot that ends a fully qualified one."""
    name = _folded(text).removesuffix(".")
    if len(name) > _MOST_HOST_NAME or not _HOST_NAME.match(name):
        return None
    return name if all(len(label) <= _MOST_LABEL for label in name.split(".")) else None


def slug(text: str) -> str | None:
    """The short name of an organization, a location, a GPU model, a fabric or a template."""
    name = _folded(text)
    return name if _SLUG.match(name) else None


def manufacturer(text: str) -> str:
    """The maker's name as the maker writes it, of those that are known; else the name as it is."""
    return _MANUFACTURERS.get(text.strip().casefold(), text.strip())


def slug_argument(text: str) -> str:
    """`slug` as the type of a command's argument."""
    name = slug(text)
    if name is None:
        raise argparse.ArgumentTypeError(f"{text[:60]!a} is not {SLUG_FORM}")
    return name


def identifier(text: str) -> uuid.UUID | None:
    """The UUID in any spelling: capitals, braces, `urn:uuid:`, without dashes. For people who paste one.

    The API takes the canonical spelling alone: `openrelay.core.ids.parse_id`.
    """
    try:
        return uuid.UUID(_folded(text)) if len(text) <= 64 else None
    except ValueError:
        return None


def network(text: str) -> Network | None:
    """The range; one of IPv4-mapped IPv6 addresses as the IPv4 range that it means. None for text that
    `network_fault` has a fault for.
    """
    try:
        found = ipaddress.ip_network(text.strip())
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Network):
        if found.network_address.scope_id is not None:
            return None
        mapped = found.network_address.ipv4_mapped
        if mapped is not None and found.prefixlen >= _MAPPED_BITS:
            return ipaddress.IPv4Network((mapped, found.prefixlen - _MAPPED_BITS))
    return found


def network_fault(text: str) -> str:
    """What is wrong with an address range, and what to write: the end of a sentence that begins with it."""
    if network(text) is not None:
        return ""
    try:
        found = ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        return f"is not {NETWORK_FORM}"
    if "%" in text:
        return f"names a zone, which only its own host knows; it is not {NETWORK_FORM}"
    # An address inside of a range: the range, or that address alone?
    address = text.strip().partition("/")[0]
    return f"has host bits. Write {found} for the range, or {address}/{found.max_prefixlen} for the address"


def search_term(text: str) -> str:
    """What to search for: the canonical form of an id or a PCI address, else the text without white space
    around it.
    """
    if (found := identifier(text)) is not None:
        return str(found)
    return pci_address(text) or text.strip()


def _folded(text: str) -> str:
    # ASCII alone: the lower case of 'K' (kelvin sign) is an ASCII letter.
    return text.strip().lower() if text.isascii() else text
