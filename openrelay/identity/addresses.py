"""Networks that a key or a role may be used from."""

import ipaddress
from collections.abc import Sequence

from openrelay.errors import Invalid


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
    """CIDRs in their canonical form, each once. Raises Invalid (VALIDATION_ERROR) naming one that is none."""
    canonical = []
    for position, text in enumerate(ranges):
        try:
            canonical.append(str(ipaddress.ip_network(text, strict=False)))
        except ValueError:
            raise Invalid(f"{field}[{position}] must be an address range such as 203.0.113.0/24.") from None
    return list(dict.fromkeys(canonical))
