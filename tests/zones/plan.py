"""From a seed to faults of zones, one after the other: pure, so that the same seed gives the same plan."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from tests.chaos.plan import Fault, Plan
from tests.chaos.topology import Topology
from tests.zones.network import OUTSIDE, QUEUE, ZONES

HOSTS = 4
"""One in each zone, and one more that joins and leaves."""
JOINING = f"host-{HOSTS}"
TOPOLOGY = Topology(servers=len(ZONES), hosts=HOSTS, joining=1)
_FIRST_AT = 3.0
_GAP_S = 4.0
_LAST_AT = 8.0
"""Before the end of the traffic."""

_Places = Sequence[str]
_Targets = Callable[[Random, _Places], str]
_Length = Callable[[Random], float]


def _zone(random: Random, _: _Places) -> str:
    return random.choice(ZONES)


def _pair(random: Random, places: _Places) -> str:
    """Of places that talk."""
    return ">".join(random.sample((*places, OUTSIDE), 2))


def _link(random: Random, places: _Places) -> str:
    return "-".join(sorted(random.sample(places, 2)))


def _host(random: Random, _: _Places) -> str:
    return f"host-{random.randint(1, len(ZONES))}"


def _always(name: str) -> _Targets:
    return lambda *_: name


def _between(least: float, most: float) -> _Length:
    return lambda random: round(random.uniform(least, most), 1)


def _one_of(*values: float) -> _Length:
    return lambda random: random.choice(values)


def _none(_: Random) -> float:
    return 0.0


KINDS: dict[str, tuple[_Targets, _Length, _Length]] = {
    # where, how long, how much
    "zone_latency": (_zone, _between(5, 8), _one_of(0.02, 0.05, 0.1)),
    "zone_loss": (_zone, _between(5, 8), _one_of(0.02, 0.05, 0.1)),
    "zone_one_way": (_pair, _between(5, 10), _none),
    "zone_mute": (_zone, _between(5, 10), _none),
    "zone_deaf": (_zone, _between(5, 10), _none),
    "zone_link": (_link, _between(5, 10), _none),
    # the longer ones outlive the leases: what comes back has old claims
    "zone_cut": (_zone, _one_of(4.0, 8.0, 18.0), _none),
    "zone_kill": (_zone, _between(3, 12), _none),
    "database_switchover": (_always("database"), _none, _none),
    "database_kill": (_always("database"), _none, _none),
    "database_host": (_always("database"), _between(3, 8), _none),
    "fleet_join": (_always(JOINING), _between(4, 8), _none),
    "fleet_leave": (_host, _between(3, 6), _none),
    "fleet_kill": (_host, _between(3, 6), _none),
}
KINDS_OF_SQS: dict[str, tuple[_Targets, _Length, _Length]] = {
    "queue_latency": (_always(QUEUE), _between(5, 8), _one_of(0.02, 0.05, 0.1)),
    "queue_loss": (_always(QUEUE), _between(5, 8), _one_of(0.02, 0.05, 0.1)),
    "queue_mute": (_always(QUEUE), _between(5, 10), _none),
    "queue_cut": (_always(QUEUE), _between(4, 8), _none),
    "sqs_outage": (_always(QUEUE), _between(3, 8), _none),
}
"""Beside the others, with SQS."""


def make_plan(
    seed: int, seconds: float, *, queue: str = "store", only: Sequence[str] = (), profile: str = "embedded"
) -> Plan:
    """The plan of a seed; `only`: kinds to choose from.

    Raises:
        ValueError: there is no such kind with this queue.
    """
    kinds, places = ({**KINDS, **KINDS_OF_SQS}, (*ZONES, QUEUE)) if queue == "sqs" else (KINDS, ZONES)
    for name in only:
        if name in KINDS_OF_SQS and queue != "sqs":
            raise ValueError(f"the fault {name!r} needs --queue sqs")
        if name not in kinds:
            raise ValueError(f"there is no kind of fault {name!r}; there are: {', '.join(kinds)}")
    random = Random(f"duly-zones/{seed}")
    faults: list[Fault] = []
    deck: list[str] = []
    at = _FIRST_AT
    while at < seconds - _LAST_AT:
        deck = deck or random.sample(list(only or kinds), len(only or kinds))
        name = deck.pop()
        where, length, amount = kinds[name]
        fault = Fault(
            len(faults) + 1, round(at, 1), name, where(random, places), length(random), amount(random)
        )
        faults.append(fault)
        at += fault.seconds + _GAP_S + random.uniform(0, 2)
    return Plan(seed, seconds, queue, replace(TOPOLOGY, has_queue=queue == "sqs"), tuple(faults), profile)
