"""What a run consists of: how many of each service, how they are named, and which of them talk to which."""

from dataclasses import dataclass
from datetime import timedelta
from random import Random

from duly_core.timing import PROFILES

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

ENQUEUE_TIMEOUT = timedelta(seconds=8)


@dataclass(frozen=True, slots=True)
class Topology:
    """How many of each."""

    frontends: int = 1
    store_consumers: int = 1
    hscs: int = 1
    hosts: int = 1
    executors: int = 1
    """Of each host."""
    processes: int = 1
    """Callback processes of each Executor."""
    has_queue: bool = False
    """Whether SQS is between the Store Consumer and the hosts; else hosts are given work by the HSC."""

    def frontend_names(self) -> list[str]:
        return _numbered("frontend", self.frontends)

    def store_consumer_names(self) -> list[str]:
        return _numbered("store-consumer", self.store_consumers)

    def hsc_names(self) -> list[str]:
        return _numbered("hsc", self.hscs)

    def host_names(self) -> list[str]:
        return _numbered("host", self.hosts)

    def links(self) -> list[str]:
        """Every pair that talks, as `from>to`: each has a proxy of its own."""
        names = [f"{name}>postgres" for name in (*self.frontend_names(), *self.hsc_names())]
        for name in self.store_consumer_names():
            names += [f"{name}>postgres"] + [f"{name}>queue"] * self.has_queue
        for name in self.host_names():
            names += [f"{name}>{hsc}" for hsc in self.hsc_names()]
            names += [f"{name}>{frontend}" for frontend in self.frontend_names()]
            names += [f"{name}>queue"] * self.has_queue
        return names + [f"client>{name}" for name in self.frontend_names()]


def choose(random: Random) -> Topology:
    """Mostly small, for each process costs a second of CPU to start; sometimes two of everything."""
    if random.random() < 0.05:
        return Topology(2, 2, 2, 2, 2, 2)

    def one_or_two(two: float) -> int:
        return 2 if random.random() < two else 1

    return Topology(
        frontends=one_or_two(0.1),
        store_consumers=one_or_two(0.15),
        hscs=one_or_two(0.15),
        hosts=one_or_two(0.3),
        executors=one_or_two(0.1),
        processes=one_or_two(0.1),
    )


def _numbered(name: str, count: int) -> list[str]:
    return [f"{name}-{number}" for number in range(1, count + 1)]
