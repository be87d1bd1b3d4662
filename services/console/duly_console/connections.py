"""Counts the console's connections: in all, and of each address."""

from collections import Counter
from ipaddress import IPv6Address, ip_address

_OF_A_NETWORK = 64
"""Bits of an IPv6 address that one machine cannot choose."""


class Connections:
    """Those that are open and within the bounds."""

    def __init__(self, most: int, most_of_one: int | None) -> None:
        """Make one, with the bounds of all and of one address; None: an address has no bound."""
        self._most = most
        self._most_of_one = most_of_one
        self._open: Counter[str] = Counter()

    def add(self, client: str) -> bool:
        """Count a connection; False: it is beyond the bounds, and not counted."""
        key = _network(client)
        if self._open.total() >= self._most:
            return False
        if self._most_of_one is not None and self._open[key] >= self._most_of_one:
            return False
        self._open[key] += 1
        return True

    def remove(self, client: str) -> None:
        """Count one less of those that were counted."""
        key = _network(client)
        self._open[key] -= 1
        if not self._open[key]:
            del self._open[key]


def _network(client: str) -> str:
    """Return what stands for whoever has this address: of IPv6 a machine has a whole network."""
    try:
        address = ip_address(client.partition("%")[0])
    except ValueError:
        return client
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(int(address) >> _OF_A_NETWORK)
    return str(address)
