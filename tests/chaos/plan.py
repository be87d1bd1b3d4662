"""From a seed to a list of timed faults: pure, so that the same seed gives the same plan, everywhere and always."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from math import ceil
from random import Random

from tests.chaos.pickers import reaches_picks
from tests.chaos.topology import (
    FRONTEND,
    HSC,
    SHORT_LEASE,
    STORE_CONSUMER,
    TIMINGS,
    TOPOLOGIES,
    Topology,
)
from tests.fixtures.failpoint_table import FAILPOINTS

_LEASE_S = SHORT_LEASE.total_seconds()
_PAUSES = (0.5, 0.99, 1.01, 3.0)
"""In leases: around the lease is where the mistakes are."""
_FIRST_AT = 2.0
_LAST_AT = 2.0
"""Before the end of the traffic."""
_ONE_IN_SQS = 5
_ONE_IN_FAILOVER, _FAILOVER_AT = 10, 3
"""Seeds that end in 3 have a standby."""
_ONE_IN_AUTH, _AUTH_AT = 4, 3
"""Seeds in which each caller needs a token and a role."""
_BURST_EVERY_S = 12.0
_ONE_IN_QUIET = 2
"""Seeds with stretches in which nothing reaches those who give tasks their turn. Other faults go on."""
_QUIET_EVERY_S, _QUIET_FROM_S, _QUIET_S = 30.0, 10.0, 8.0
"""The aftermath of what was done before, a burst of tasks with fair keys, and their waits."""
_BURST_AFTER_S = 3.5
"""The burst of such a stretch, after it began."""
_GAP_S = 2.2
"""Between two faults, on average: faults last for seconds, so that several go on at a time."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is done to the system."""

    number: int
    at_s: float
    """After the start of the traffic."""
    kind: str
    target: str
    seconds: float = 0.0
    """How long; 0: it happens at once."""
    amount: float = 0.0
    """What it means depends on the kind."""

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.2f} s" if self.seconds else ""
        amount = f" ({self.amount:g})" if self.amount else ""
        return f"{self.at_s:6.2f} s  #{self.number:<3} {self.kind} {self.target}{lasting}{amount}"


@dataclass(frozen=True, slots=True)
class Plan:
    """One run."""

    seed: int
    seconds: float
    queue: str
    topology: Topology
    faults: tuple[Fault, ...]
    profile: str = "short"
    """Of the timing, by its name in TIMINGS."""
    auth: bool = False
    """Whether each caller needs a token and a role; a stranger tries what it may not."""
    weaker_containment: bool = False
    """Whether hosts contain callbacks without cgroups, whatever is done to them."""
    mutation: str = ""
    """What is wrong with Duly in this run, by its name in `mutations.py`; none: nothing is."""
    quiet: tuple[float, ...] = ()
    """When the stretches begin in which nothing reaches those who give tasks their turn."""

    @property
    def lease(self) -> timedelta:
        """heartbeat_timeout and claim_timeout."""
        return TIMINGS[self.profile][1]

    @property
    def peaceful(self) -> bool:
        """Whether nothing is broken, and no callback breaks its process: then nothing runs twice."""
        return not self.faults

    @property
    def harmless(self) -> bool:
        """Whether no fault may charge a task with a crash: then those that never crash are not quarantined."""
        return all(fault.kind.startswith(HARMLESS) for fault in self.faults)

    @property
    def contained(self) -> bool:
        """Whether callback processes end only where their Executor sees to what they started (decision 0015)."""
        return all(fault.kind.startswith((*HARMLESS, "kill_callback")) for fault in self.faults)

    @property
    def containment(self) -> str:
        """By the seed: the weaker means is exact with one callback process only."""
        by_seed = self.seed % 2 == 0 and self.contained and self.topology.processes == 1
        return "subreaper" if by_seed or self.weaker_containment else "auto"

    @property
    def punctual(self) -> bool:
        """Whether what is done may make no task late: notifications are lost, or the Store Consumer is away from a store."""
        return self.queue == "store" and all(fault.kind.startswith(_PUNCTUAL) for fault in self.faults)

    @property
    def bursts(self) -> tuple[float, ...]:
        """When tasks with fair keys come; the first of them only tell that there are keys."""
        quiet = [begin + _BURST_AFTER_S for begin in self.quiet]
        usual = [_BURST_EVERY_S * number for number in range(ceil(self.seconds / _BURST_EVERY_S))]
        return tuple(
            sorted((*quiet, *(at for at in usual if all(abs(at - one) >= _QUIET_S for one in quiet))))
        )

    @property
    def own_postgres(self) -> bool:
        """Whether something is done to the whole server: then the run has one for itself."""
        return any(fault.kind in _OF_THE_SERVER for fault in self.faults)

    @property
    def standby(self) -> bool:
        """Whether Postgres has one."""
        return any(fault.kind == "postgres_failover" for fault in self.faults)

    def as_json(self) -> dict[str, object]:
        return json.loads(json.dumps(asdict(self)))


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to break something."""

    targets: Callable[[Topology], list[str]]
    seconds: Callable[[Random], float] = lambda _: 0.0
    amount: Callable[[Random], float] = lambda _: 0.0
    usual: bool = True
    """Whether runs that name no kinds do it."""
    queue: str = ""
    """Only with this queue; empty: any."""
    once: bool = False
    """At most once in a run."""


def _span(least: float, most: float) -> Callable[[Random], float]:
    return lambda random: round(random.uniform(least, most), 2)


def _pause(random: Random) -> float:
    return random.choices(_PAUSES, (3, 3, 3, 1))[0] * _LEASE_S


def _one_of(*values: float) -> Callable[[Random], float]:
    return lambda random: random.choice(values)


def _fixed(*names: str) -> Callable[[Topology], list[str]]:
    return lambda _: list(names)


def _single(service: str) -> Callable[[Topology], list[str]]:
    return lambda topology: topology.single_names()[service]


_SERVICES: dict[str, Callable[[Topology], list[str]]] = {
    "frontend": _single(FRONTEND),
    "store_consumer": _single(STORE_CONSUMER),
    "hsc": _single(HSC),
    "server": Topology.server_names,
}
_HOST_PARTS = ("controller", "executor", "callback")
_POSTGRES = _fixed("postgres")
_POINTS_OF_A_QUEUE = ("controller.", "store_consumer.push", "store_consumer.put_back", "hsc.claim.")
_POINTS_WITHOUT = ("hsc.claim_work.",)
_QUEUE = _fixed("queue")

_OF_THE_SERVER = (
    *("postgres_kill", "postgres_restart", "postgres_outage", "postgres_pause", "postgres_failover"),
)
_AROUND_CLAIMS = ("hsc.claim.", "hsc.claim_work.", "executor.take.", "executor.give.")


def _points(action: str, names: tuple[str, ...] = ("",)) -> Callable[[Topology], list[str]]:
    """Failpoints at which this can be done."""
    return lambda topology: [
        name
        for name, point in FAILPOINTS.items()
        if action in point.actions
        and name.startswith(names)
        and not name.startswith(_POINTS_WITHOUT if topology.has_queue else _POINTS_OF_A_QUEUE)
    ]


_PUNCTUAL = ("notification_", "away_store_consumer", "kill_store_consumer", "term_store_consumer")
HARMLESS = ("notification_", "sqs_", "term_frontend", "kill_frontend")
"""Kinds, by how they begin, of which no claim dies: messages are notifications, and a dead Frontend holds none."""

SQS_CHANCES = (
    *("duplicate", "reorder", "delay", "lose_request", "lose_reply"),
    *("resurrect", "fail_entries", "refuse", "throttle", "hang"),
)
"""What the faulty SQS can be told to do by chance."""

KINDS: dict[str, Kind] = {
    **{f"kill_{name}": Kind(targets) for name, targets in _SERVICES.items()},
    **{f"kill_{part}": Kind(Topology.host_names) for part in _HOST_PARTS},
    "kill_host": Kind(Topology.host_names),
    # As kill_host, and the claim journals go with the machine: only the end of the leases tells.
    "lose_host": Kind(Topology.host_names),
    **{f"term_{name}": Kind(targets) for name, targets in _SERVICES.items()},
    "term_executor": Kind(Topology.host_names),
    "term_host": Kind(Topology.host_names),
    **{f"pause_{name}": Kind(targets, _pause) for name, targets in _SERVICES.items()},
    **{f"pause_{part}": Kind(Topology.host_names, _pause) for part in _HOST_PARTS},
    "pause_host": Kind(Topology.host_names, _pause),
    "postgres_kill": Kind(_POSTGRES, _span(0.0, 1.0)),
    "postgres_restart": Kind(_POSTGRES),
    "postgres_outage": Kind(_POSTGRES, _span(1.0, 7.0)),
    "postgres_pause": Kind(_POSTGRES, _span(0.5, 6.0)),
    "postgres_terminate": Kind(_POSTGRES, amount=_span(0.3, 1.0)),
    "postgres_lock": Kind(_POSTGRES, _span(1.0, 6.0), amount=_span(1, 30)),
    # Costs a second server: in every tenth seed, and in the runs that name it. They are told nothing that the
    # standby does not have.
    "postgres_failover": Kind(_POSTGRES, _span(0.0, 4.0), usual=False, once=True),
    "clock_step": Kind(_POSTGRES, amount=_one_of(-0.4, -0.2, 0.2, 0.4)),
    "clock_jump": Kind(
        _POSTGRES, _span(4.0, 12.0), amount=_one_of(-60.0, -12.0, -12.0, 12.0, 12.0, 12.0, 12.0, 60.0)
    ),
    **{
        f"net_{mode}": Kind(Topology.links, _span(1.0, 8.0), amount=_one_of(0, 0, 1))
        for mode in ("blackhole", "cut_there", "cut_back")
    },
    "net_refuse": Kind(Topology.links, _span(1.0, 8.0)),
    "net_throttle": Kind(Topology.links, _span(2.0, 8.0), amount=_one_of(2_000, 20_000)),
    "net_reset": Kind(Topology.links),
    "net_delay": Kind(Topology.links, _span(2.0, 8.0), amount=_one_of(0.05, 0.2, 0.8, 2.0, 5.0)),
    "away_store_consumer": Kind(_SERVICES["store_consumer"], _span(3.0, 15.0)),
    **{
        f"point_{action}": Kind(_points(action), _span(2.0, 6.0), amount=_span(0.2, 3.0))
        for action in ("crash", "raise", "delay", "drop_reply")
    },
    # Whoever gives out work, or has just been given some, is frozen, crashed, or never heard, exactly then.
    **{
        f"claim_{action}": Kind(_points(action, _AROUND_CLAIMS), _span(2.0, 6.0), amount=_span(0.2, 3.0))
        for action in ("crash", "raise", "delay", "drop_reply")
    },
    "claim_freeze": Kind(_points("crash", _AROUND_CLAIMS), _pause),
    "notification_lose": Kind(_POSTGRES, _span(1.0, 6.0), queue="store"),
    "notification_forge": Kind(_POSTGRES, _span(0.5, 3.0), queue="store"),
    **{
        f"sqs_{what}": Kind(_QUEUE, _span(2.0, 8.0), amount=_one_of(0.05, 0.2, 0.5), queue="sqs")
        for what in SQS_CHANCES
    },
    "sqs_outage": Kind(_QUEUE, _span(1.0, 8.0), queue="sqs"),
}


def make_plan(
    seed: int,
    seconds: float,
    *,
    queue: str = "any",
    only: Sequence[str] = (),
    topology: str = "any",
    faults: bool = True,
    profile: str = "",
    auth: bool = False,
    weaker_containment: bool = False,
    mutation: str = "",
) -> Plan:
    """The plan of a seed; `only` names the kinds to choose from, and with queue "any" the seed chooses that, too.

    Without a profile leases are short in runs with faults. `auth`: in every run, and not only by the seed.

    Raises:
        ValueError: there is no such kind.
    """
    random = Random(f"duly-chaos/{seed}")
    chosen = TOPOLOGIES[topology](random)
    if queue == "any":
        queue = "store" if seed % _ONE_IN_SQS else "sqs"
    chosen = replace(chosen, has_queue=queue == "sqs")
    if weaker_containment:
        chosen = replace(chosen, processes=1)
    profile = profile or ("short" if faults else "embedded")
    kinds = _kinds(only, chosen) if faults else []
    if kinds and not only and seed % _ONE_IN_FAILOVER == _FAILOVER_AT:
        kinds.append("postgres_failover")
    lease_s = TIMINGS[profile][1].total_seconds()
    quiet = _quiet(seconds) if seed % _ONE_IN_QUIET and lease_s < _QUIET_EVERY_S else ()
    return Plan(
        seed,
        seconds,
        queue,
        chosen,
        tuple(_faults(random, kinds, seconds, chosen, lease_s, quiet)),
        profile,
        auth or seed % _ONE_IN_AUTH == _AUTH_AT,
        weaker_containment,
        mutation,
        quiet,
    )


def _kinds(only: Sequence[str], topology: Topology) -> list[str]:
    queue = "sqs" if topology.has_queue else "store"
    for name in only:
        if not any(_is_meant(known, name) for known in KINDS):
            raise ValueError(f"there is no kind of fault {name!r}; there are: {', '.join(KINDS)}")
    return [
        known
        for known, kind in KINDS.items()
        if kind.queue in ("", queue)
        and kind.targets(topology)
        and (any(_is_meant(known, name) for name in only) if only else kind.usual)
    ]


def _is_meant(known: str, name: str) -> bool:
    """`pause` means all usual ones that begin with `pause_`."""
    return known == name or (KINDS[known].usual and known.startswith(f"{name}_"))


def _quiet(seconds: float) -> tuple[float, ...]:
    count = (seconds - _QUIET_FROM_S - _QUIET_S) // _QUIET_EVERY_S + 1
    return tuple(_QUIET_FROM_S + _QUIET_EVERY_S * number for number in range(int(count)))


def _faults(
    random: Random,
    kinds: list[str],
    seconds: float,
    topology: Topology,
    lease_s: float,
    quiet: tuple[float, ...],
) -> list[Fault]:
    """Dealt from a shuffled deck, so that every run meets many kinds."""
    faults: list[Fault] = []
    deck: list[str] = []
    at = _FIRST_AT
    while kinds and at < seconds - _LAST_AT:
        if not deck:
            done = {fault.kind for fault in faults}
            deck = [
                name for name in random.sample(kinds, len(kinds)) if not (KINDS[name].once and name in done)
            ]
            if not deck:
                break
        following = next((begin for begin in quiet if at < begin + _QUIET_S), None)
        drawn = _draw(random, deck, topology, lease_s, None if following is None else following - at)
        if drawn is None and following is not None:
            at = following + _QUIET_S
        if drawn is None:
            continue
        name, target, lasting = drawn
        lasting = round(min(lasting, seconds - at), 2)
        amount = KINDS[name].amount(random)
        faults.append(Fault(len(faults) + 1, round(at, 2), name, target, lasting, amount))
        at += random.uniform(0.5, 1.5) * _GAP_S
    return faults


def _draw(
    random: Random, deck: list[str], topology: Topology, lease_s: float, most_s: float | None
) -> tuple[str, str, float] | None:
    """Draw a kind, its target, and how long it lasts; `most_s`: if it reaches picks. None: no card of the deck fits."""
    for _ in range(len(deck)):
        kind = KINDS[name := deck.pop()]
        lasting = kind.seconds(random)
        if kind.seconds is _pause:
            lasting *= lease_s / _LEASE_S
        target = random.choice(kind.targets(topology))
        if most_s is None or lasting < most_s or not reaches_picks(name, target):
            return name, target, lasting
        deck.insert(0, name)
    return None
