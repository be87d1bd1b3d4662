"""What a run consists of: how many of each service, how they are named, and which of them talk to which."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from random import Random

from duly_core.config.timing import PROFILES

SHORT_LEASE = timedelta(seconds=6)
"""heartbeat_timeout and claim_timeout of a run with faults: those of several leases fit into a minute."""

# Keeps to the inequalities: 3 * 1.2 + 0.8 + 0.4 <= 4.9 <= (6 - 0.5) * 0.998 - 0.3.
SHORT_TIMING = {
    "DULY_TIMING_PROFILE": "embedded",
    "DULY_TIMING_HEARTBEAT_PERIOD": "1200ms",
    "DULY_TIMING_HEARTBEAT_DEADLINE": "800ms",
    "DULY_TIMING_SCHEDULING_LATENESS": "400ms",
    "DULY_TIMING_PROCESS_DEADLINE": "4900ms",
    "DULY_TIMING_HEARTBEAT_TIMEOUT": "6s",
    "DULY_TIMING_CLAIM_TIMEOUT": "6s",
    "DULY_TIMING_KILL_LATENCY": "300ms",
    "DULY_TIMING_CLOCK_STEP": "500ms",
}

EMBEDDED_LEASE = PROFILES["embedded"]["heartbeat_timeout"]
"""Of a run without faults: nothing runs twice there, so a slow machine must not look like a dead host."""
EMBEDDED_TIMING = {"DULY_TIMING_PROFILE": "embedded"}

PRODUCTION_TIMING = {"DULY_TIMING_PROFILE": "production"}

TIMINGS: Mapping[str, tuple[Mapping[str, str], timedelta]] = {
    "short": (SHORT_TIMING, SHORT_LEASE),
    "embedded": (EMBEDDED_TIMING, EMBEDDED_LEASE),
    "production": (PRODUCTION_TIMING, PROFILES["production"]["heartbeat_timeout"]),
}
"""By the name of the profile: the settings, and the lease."""

ENQUEUE_TIMEOUT = timedelta(seconds=8)
POLL_INTERVAL = timedelta(seconds=1)
FILE_GRACE = timedelta(seconds=3)
"""How long an attachment stays that no task uses; sweeps are more frequent."""

SLOTS = 24
"""Of each Executor."""

FRONTEND, HSC, STORE_CONSUMER, SERVER, HOST = "frontend", "hsc", "store-consumer", "server", "host"
"""What a process is."""

STALE_HSC = "stale-hsc"
"""The HSC that only the replayer calls. No fault is aimed at it."""

_SHARED, _TWO_SERVERS, _TWO_OF_ALL = 0.6, 0.2, 0.05
"""The parts of the topologies in which services share a process; in which there are two of those; two of everything."""

_SEVERAL, _SEVERAL_SHARED = (2, 3), 0.5


@dataclass(frozen=True, slots=True)
class Topology:
    """How many of each."""

    frontends: int = 1
    store_consumers: int = 1
    hscs: int = 1
    hosts: int = 1
    joining: int = 0
    """Of the hosts: so many start only when a fault says so, which may be never."""
    executors: int = 1
    """Of each host."""
    processes: int = 1
    """Callback processes of each Executor."""
    has_queue: bool = False
    """Whether SQS is between the Store Consumer and the hosts; else hosts are given work by the HSC."""
    servers: int = 0
    """So many processes, each of which is a Frontend, a Store Consumer and an HSC; 0: each is a process of its own."""

    def frontend_names(self) -> list[str]:
        """Where clients and hosts call."""
        return _numbered("frontend", self.servers or self.frontends)

    def hsc_names(self) -> list[str]:
        return _numbered("hsc", self.servers or self.hscs)

    def store_consumer_names(self) -> list[str]:
        return _numbered("store-consumer", self.servers or self.store_consumers)

    def server_names(self) -> list[str]:
        """Processes of three services."""
        return _numbered("server", self.servers)

    def single_names(self) -> dict[str, list[str]]:
        """Processes of one service, by the service."""
        if self.servers:
            return {FRONTEND: [], HSC: [], STORE_CONSUMER: []}
        return {
            FRONTEND: self.frontend_names(),
            HSC: self.hsc_names(),
            STORE_CONSUMER: self.store_consumer_names(),
        }

    def host_names(self) -> list[str]:
        return _numbered("host", self.hosts)

    def links(self) -> list[str]:
        """Every pair that talks, as `from>to`: each has a proxy of its own."""
        singles = self.single_names()
        servers = [*self.server_names(), *chain.from_iterable(singles.values())]
        names = [f"{name}>postgres" for name in servers]
        if self.has_queue:
            names += [
                f"{name}>queue"
                for name in (*self.server_names(), *singles[STORE_CONSUMER], *self.host_names())
            ]
        for name in self.host_names():
            names += [f"{name}>{hsc}" for hsc in self.hsc_names()]
            names += [f"{name}>{frontend}" for frontend in self.frontend_names()]
        return names + [f"client>{name}" for name in self.frontend_names()]


def choose(random: Random) -> Topology:
    """Mostly small, and in more than half the services share a process; sometimes two of everything."""
    shared, two = random.random() < _SHARED, random.random() < _TWO_SERVERS
    servers = (1 + two) * shared
    if random.random() < _TWO_OF_ALL:
        return Topology(2, 2, 2, 2, 2, 2, servers=2 * bool(servers))

    def one_or_two(two: float) -> int:
        return 2 if random.random() < two else 1

    return Topology(
        frontends=one_or_two(0.1),
        store_consumers=one_or_two(0.15),
        hscs=one_or_two(0.15),
        hosts=one_or_two(0.3),
        executors=one_or_two(0.1),
        processes=one_or_two(0.1),
        servers=servers,
    )


def choose_several(random: Random) -> Topology:
    """Two or three of each service, and of the hosts; in some the services share processes."""
    return Topology(
        frontends=random.choice(_SEVERAL),
        store_consumers=random.choice(_SEVERAL),
        hscs=random.choice(_SEVERAL),
        hosts=random.choice(_SEVERAL),
        executors=1 + (random.random() < _TWO_SERVERS),
        processes=1 + (random.random() < _TWO_SERVERS),
        servers=random.choice(_SEVERAL) if random.random() < _SEVERAL_SHARED else 0,
    )


TOPOLOGIES: Mapping[str, Callable[[Random], Topology]] = {"any": choose, "several": choose_several}


def _numbered(name: str, count: int) -> list[str]:
    return [f"{name}-{number}" for number in range(1, count + 1)]
