"""The host of an ACL: `*` for every host, an address, or a range of addresses in CIDR notation (KIP-1276).

An address matches however it is written: `2001:db8::1` and `2001:db8:0:0:0:0:0:1` are one host, and an IPv4 address
that arrives mapped into IPv6 is the IPv4 address. Names are never resolved.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Final

EVERY_HOST: Final = "*"

_IPV4_RANGE: Final = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})/([0-9]{1,2})")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_address(host: str) -> Address | None:
    """None if the host is not an address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped


def parse_range(text: str) -> Network:
    """Parse `192.168.0.0/24` or `2001:db8::/32`. Bits below the prefix are ignored. ValueError if it is neither."""
    if ":" in text:
        address, _, prefix = text.partition("/")
        if not re.fullmatch(r"[0-9]{1,3}", prefix):
            raise ValueError(f"Could not parse [{text}]")
        return ipaddress.IPv6Network((ipaddress.IPv6Address(address), int(prefix)), strict=False)
    match = _IPV4_RANGE.fullmatch(text)
    if match is None:
        raise ValueError(f"Could not parse [{text}]")
    *parts, prefix_length = (int(part) for part in match.groups())
    if any(part > 255 for part in parts):
        raise ValueError(f"Could not parse [{text}]: a part of an IPv4 address is at most 255")
    return ipaddress.IPv4Network((bytes(parts), prefix_length), strict=False)


def host_matcher(pattern: str) -> Callable[[str, Address | None], bool]:
    """A function that tells whether a client's host, given as text and as an address, matches the pattern."""
    if pattern == EVERY_HOST:
        return lambda host, address: True
    if "/" in pattern:
        try:
            network = parse_range(pattern)
        except ValueError:
            return lambda host, address: False  # written by other software; it names no host
        return lambda host, address: address is not None and address.version == network.version and address in network
    wanted = parse_address(pattern)
    return lambda host, address: host == pattern or (wanted is not None and address == wanted)
