"""Addresses that requests come from, and networks that a key or a role may be used from."""

import functools
import ipaddress
import re
from collections.abc import Sequence

from openrelay.core import canonical
from openrelay.core.errors import Invalid

# 192.0.2.1:8080 and [2001:db8::1]:8080, as some proxies write an address; the port is optional in brackets.
_WITH_PORT = re.compile(
    r"(?:(?P<v4>[0-9.]{7,15}):|\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]:?)(?P<port>(?<=:)[0-9]{1,5})?"
)


@functools.lru_cache(4096)
def canonical_address(text: str) -> str:
    """An IP address in its one form, without port and brackets; empty for anything that is not an address.

    An IPv4 address reads as one, also where IPv6 carries it (`::ffff:192.0.2.1`). A zone (`fe80::1%eth0`) is
    refused: it names an interface of the machine that wrote it.
    """
    text = text.strip(" \t")
    if found := _WITH_PORT.fullmatch(text):
        if (text.endswith(":") or found["v4"]) and not found["port"]:
            return ""
        text = found["v4"] or found["v6"]
    if len(text) > 45 or "%" in text:
        return ""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    return str(getattr(address, "ipv4_mapped", None) or address)


def client_address(peer: str, forwarded: str, trusted_proxies: int) -> str:
    """The address a request came from: the peer, or what `trusted_proxies` proxies of ours say of it.

    Each proxy appends the address that it saw to X-Forwarded-For (`forwarded`). So the outermost of our
    proxies wrote the entry at that place from the right, and the client wrote everything left of it. Empty
    when that entry is missing or is not an address: an unknown address passes no restriction.
    """
    if not trusted_proxies:
        return canonical_address(peer)
    entries = forwarded.split(",")
    return canonical_address(entries[-trusted_proxies]) if len(entries) >= trusted_proxies else ""


def in_ranges(address: str, ranges: Sequence[str]) -> bool:
    """Whether an address lies in one of some CIDR ranges. What is no address lies in none."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return any(ip in ipaddress.ip_network(cidr, strict=False) for cidr in ranges)


def within(inner: Sequence[str], outer: Sequence[str]) -> bool:
    """Whether every range of `inner` lies whole in one of `outer`."""
    networks = [ipaddress.ip_network(cidr, strict=False) for cidr in outer]
    return all(_covered(ipaddress.ip_network(cidr, strict=False), networks) for cidr in inner)


def _covered(
    network: ipaddress.IPv4Network | ipaddress.IPv6Network,
    networks: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network],
) -> bool:
    for known in networks:
        if isinstance(network, ipaddress.IPv4Network) and isinstance(known, ipaddress.IPv4Network):
            if network.subnet_of(known):
                return True
        elif (
            isinstance(network, ipaddress.IPv6Network)
            and isinstance(known, ipaddress.IPv6Network)
            and network.subnet_of(known)
        ):
            return True
    return False


def checked_ranges(ranges: Sequence[str], *, field: str) -> list[str]:
    """CIDRs in their canonical form, each once. Raises Invalid (VALIDATION_ERROR) naming one that is none,
    or that has host bits.
    """
    found = []
    for position, text in enumerate(ranges):
        network = canonical.network(text)
        if network is None:
            raise Invalid(f"{field}[{position}] {text[:60]!a} {canonical.network_fault(text)}.")
        found.append(str(network))
    return list(dict.fromkeys(found))
