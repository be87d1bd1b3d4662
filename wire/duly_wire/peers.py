"""Servers that do the same: how a list of their addresses is read, which of them to avoid, and how soon a silent one is given up."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

# A server that says nothing for so long, while calls wait, is given up: the next ping goes out after the first time,
# and must be answered within the second.
FAST_KEEPALIVE: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 300),
    ("grpc.keepalive_timeout_ms", 800),
    ("grpc.http2.ping_timeout_ms", 800),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.keepalive_permit_without_calls", 0),
    # a server that takes a connection and says nothing is given up as soon
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]

# A name that stands for several servers: all of them are used in turn. gRPC asks for their addresses again when it
# loses one, by default at most every 30 s: servers that were all replaced within this time would not be found for the rest of it.
ROUND_ROBIN: list[tuple[str, str | int]] = [
    ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'),
    ("grpc.dns_min_time_between_resolutions_ms", 500),
]

_FIRST_AVOIDED_S = 0.5
_LONGEST_AVOIDED_S = 10.0
# A failure that comes so long after the end of the pause before it is a first one.
_FORGOTTEN_S = 30.0
_LOCAL = re.compile(r"(?:unix|unix-abstract|vsock):")
_LISTED = re.compile(r"(ipv[46]):(.+)")
_ZONE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_IN_ZONE = re.compile(rf"({_ZONE.pattern})=(.+)")

ZONE = "DULY_RPC_ZONE"
"""The variable that tells a process in which zone it is."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One server of a list."""

    address: str
    zone: str = ""
    """Where it is; empty: the list does not say."""


def is_zone(name: str) -> bool:
    """Tell whether this may be the name of a zone."""
    return _ZONE.fullmatch(name) is not None


def split_peers(text: str) -> list[Peer]:
    """Return the servers of a list with commas: of `a:1,b:2`, or, with their zones, of `east=a:1,west=b:2`."""
    return [
        Peer(found[2], found[1]) if (found := _IN_ZONE.fullmatch(each)) else Peer(each)
        for each in _split(text)
    ]


def split_addresses(text: str) -> list[str]:
    """Return the addresses of a list, without their zones."""
    return [peer.address for peer in split_peers(text)]


def near(peers: Sequence[Peer], zone: str) -> frozenset[str]:
    """Return the addresses of the servers of this zone; empty: none is nearer than the others."""
    return frozenset(peer.address for peer in peers if zone and peer.zone == zone)


def _split(text: str) -> list[str]:
    """Split `a:1,b:2`, `unix:/a,unix:/b`, or `ipv4:a:1,b:2`."""
    if listed := _LISTED.fullmatch(text):
        return [f"{listed[1]}:{each.strip()}" for each in listed[2].split(",")]
    addresses: list[str] = []
    for each in text.split(","):
        if addresses and _LOCAL.match(_without_zone(addresses[-1])) and not _is_address(each.strip()):
            addresses[-1] += f",{each}"  # of a path
        else:
            addresses.append(each.strip())
    return addresses


def _without_zone(text: str) -> str:
    return found[2] if (found := _IN_ZONE.fullmatch(text)) else text


def _is_address(text: str) -> bool:
    text = _without_zone(text)
    return bool(_LOCAL.match(text)) or bool(re.fullmatch(r"[^/]+:[0-9]+", text))


def stands_for_several(address: str) -> bool:
    """Tell whether it is a name that gRPC resolves, to several servers perhaps."""
    return address.startswith("dns:")


class Avoided:
    """Remembers which servers failed lately, and until when others are better; any thread may tell or ask it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures: dict[str, int] = {}
        self._until: dict[str, float] = {}

    def note_failure(self, address: str) -> None:
        """Avoid this server for a while, longer after each failure in a row."""
        now = time.monotonic()
        with self._lock:
            is_again = now - self._until.get(address, 0.0) < _FORGOTTEN_S
            failures = self._failures[address] = self._failures.get(address, 0) + 1 if is_again else 1
            pause = min(_FIRST_AVOIDED_S * (1 << min(failures, 10)), _LONGEST_AVOIDED_S)
            self._until[address] = now + pause * random.uniform(0.5, 1)  # noqa: S311 (no secret)

    def is_avoided(self, address: str) -> bool:
        """Tell whether another server is better now."""
        return bool(self._until) and self._until.get(address, 0.0) > time.monotonic()
