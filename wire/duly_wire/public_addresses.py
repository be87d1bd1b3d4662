"""Decides which addresses may be connected to. No I/O.

Names are not judged: what counts is the address of each connection, when it is made.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
"""Their last 32 bits are an IPv4 address (RFC 6052)."""
_IPV4_COMPATIBLE = ipaddress.IPv6Network("::/96")
_NEVER_PUBLIC = tuple(
    ipaddress.ip_network(each)
    for each in (
        # not every release of Python's table of special addresses has these
        *("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15", "240.0.0.0/4"),
        *("fec0::/10", "100::/64", "2001:db8::/32", "3fff::/20", "5f00::/16"),
    )
)
_METADATA = frozenset(
    ipaddress.ip_address(each)
    for each in (
        "169.254.169.254",  # AWS, Azure, Google, OpenStack and others
        "169.254.170.2",  # AWS: credentials of containers
        "169.254.170.23",
        "168.63.129.16",  # Azure, a public address
        "100.100.100.200",  # Alibaba
        "192.0.0.192",  # Oracle
        "fd00:ec2::254",  # AWS
        "fd00:ec2::23",
        "fd20:ce::254",  # Google
    )
)
"""Where clouds hand credentials to any program that asks."""


def is_allowed(address: str, allowed: Sequence[Network]) -> bool:
    """Return whether a connection may go to this address; `allowed` are networks beside the public ones.

    A metadata service is allowed only by a network that has no other address.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    meant = _embedded(found)
    each_of = (found, *meant)
    if any(each in _METADATA for each in each_of):
        return any(network.num_addresses == 1 and each in network for each in each_of for network in allowed)
    if isinstance(found, ipaddress.IPv6Address) and found.teredo is not None:
        # whoever writes it names the server and the client in it: neither says where a packet goes
        return any(found in network for network in allowed if network.version == found.version)
    if any(each in network for each in each_of for network in allowed if network.version == each.version):
        return True
    return all(_is_public(each) for each in (meant or each_of))


def _is_public(address: Address) -> bool:
    if any(address in network for network in _NEVER_PUBLIC if network.version == address.version):
        return False
    return address.is_global and not (
        address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_reserved
        or address.is_unspecified
    )


def _embedded(address: Address) -> tuple[ipaddress.IPv4Address, ...]:
    """Return the IPv4 addresses that an IPv6 address stands for: mapped, compatible, 6to4, Teredo, NAT64."""
    if isinstance(address, ipaddress.IPv4Address):
        return ()
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    if any(address in network for network in _NAT64) or (address in _IPV4_COMPATIBLE and int(address) > 1):
        return (ipaddress.IPv4Address(int(address) & 0xFFFFFFFF),)
    return ()
