"""The kinds of tasks that a run schedules: how often, with which policy, and how they may end."""

from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

SUCCESS, FATAL, CANCELLED = "success", "fatal_failure", "cancelled"
POISON_CRASHES = 3
MANY = 1_000
EVENT_KEY = "chaos.{}"
"""Of the event that a task waits for; roles for the lambdas of a run cover it."""
"""Attempts, and crashes, of those that must succeed whatever is done to them."""


@dataclass(frozen=True, slots=True)
class TaskKind:
    """One temper of callbacks; those of one policy are of one lambda, for each has queues that are polled."""

    name: str
    share: int
    """Of 10,000 tasks."""
    statuses: tuple[str, ...] = (SUCCESS,)
    """How it may end."""
    executions_least: int = 1
    max_attempts: int = MANY
    max_crashes: int = MANY
    max_runtime: timedelta = timedelta(minutes=10)
    cancelled: bool = False
    """Whether the client cancels it while it waits or runs."""
    crashes_itself: bool = False
    longest: timedelta = timedelta()
    """How much longer than others it may take: its own runtime, backoffs and snoozes."""

    alone: bool = False
    """Whether it has a lambda of its own; else it is one of "chaos.work" or "chaos.work_async"."""

    @property
    def lambda_name(self) -> str:
        if self.alone:
            return f"chaos.{self.name}"
        return "chaos.work_async" if self.name in _ASYNC else "chaos.work"

    @property
    def breaks_its_process(self) -> bool:
        """Whether what runs beside it may have to run again."""
        return self.crashes_itself or self.name in ("overruns_once", "stubborn", "gil")

    def payload(self, random: Random, *, shares: bool = False) -> dict[str, Any]:
        """Small, and random where the callback takes its time. `shares`: what it starts holds its lock, too."""
        taking = {"ms": random.randrange(*_TAKES_MS)} if self.name in _TAKES_TIME else {}
        return {"kind": self.name, "shares": shares, **taking}


_UPLOAD = timedelta(seconds=90)
"""A call that carries a part waits for its answer for so long, if its connection is silent and not closed."""
_TAKES_MS = (1_000, 3_000)
_TAKES_TIME = ("long", "long_again", "gil", "stubborn", "cancellable", "grandchild", "daemon")
_ASYNC = ("nap_async", "raises_once")

KINDS = (
    TaskKind("quick", 0),  # the rest
    TaskKind("nap", 1_500),
    TaskKind("nap_async", 1_000),
    TaskKind("long", 250, longest=timedelta(seconds=8)),
    TaskKind("fails_once", 300),
    TaskKind("raises_once", 200),
    TaskKind("fails_always", 50, (FATAL,), executions_least=1, max_attempts=3, alone=True),
    TaskKind("says_fatal", 50, (FATAL,)),
    TaskKind("asks_later", 150),
    TaskKind("snoozes_once", 150),
    TaskKind("waits", 150, executions_least=2),
    TaskKind("long_again", 120, longest=timedelta(seconds=8)),
    TaskKind("exits_once", 12, crashes_itself=True),
    TaskKind("segfaults_once", 8, crashes_itself=True),
    TaskKind(
        "poison",
        12,
        (FATAL,),
        executions_least=0,
        max_crashes=POISON_CRASHES,
        crashes_itself=True,
        alone=True,
    ),
    TaskKind("overruns_once", 8, max_runtime=timedelta(seconds=1), alone=True),
    TaskKind("careful", 0, max_crashes=POISON_CRASHES, alone=True),  # naps, where nothing may crash them
    TaskKind("batched", 600, alone=True),  # shares calls with others of its kind
    TaskKind("begets", 100),  # a task in a session, with resources
    TaskKind("grows", 0),  # in graphs
    TaskKind("fair", 0, alone=True),  # in bursts, with fair keys
    TaskKind("grandchild", 20, longest=timedelta(seconds=8)),
    TaskKind("daemon", 0, crashes_itself=True, longest=timedelta(seconds=8)),  # where nothing is paused
    TaskKind("gil", 20, longest=timedelta(seconds=8)),
    TaskKind(
        "cancellable",
        150,
        (SUCCESS, CANCELLED),
        executions_least=0,
        cancelled=True,
        longest=timedelta(seconds=8),
    ),
    TaskKind(
        "stubborn", 30, (SUCCESS, CANCELLED), executions_least=0, cancelled=True, longest=timedelta(seconds=8)
    ),
    # with attachments, in `file_clients.py`
    TaskKind("reads_file", 0, longest=_UPLOAD),
    TaskKind("makes_file", 0, longest=_UPLOAD),
    TaskKind("takes_file", 0, longest=_UPLOAD),
    TaskKind("gets_file", 0, longest=_UPLOAD),
    TaskKind("fails_with_file", 0, (SUCCESS, FATAL), longest=_UPLOAD),
    TaskKind("expiring", 100, (SUCCESS, FATAL), executions_least=0),
)
BY_NAME = {kind.name: kind for kind in KINDS}

IN_SESSIONS = (
    *("quick", "quick", "nap", "nap_async", "fails_once", "raises_once", "asks_later", "snoozes_once"),
    *("says_fatal", "fails_always", "cancellable", "expiring"),
)
"""Kinds that are scheduled in sessions: none breaks its process, and how each ends is known."""

IN_GRAPHS = (
    *("quick", "quick", "quick", "nap", "nap_async", "fails_once", "snoozes_once"),
    *("says_fatal", "says_fatal", "grows", "grows"),
)
"""The same for nodes of graphs."""
ATTACHING = ("reads_file", "makes_file")
"""Kinds that return a file."""
CHANGED = ("quick", "nap")
"""Kinds that write down which payload they were given."""


def choose(random: Random, *, peaceful: bool, harmless: bool = False, contained: bool = False) -> TaskKind:
    """The kind of the next task.

    `peaceful`: none that breaks its process; `harmless`: no fault charges anybody; `contained`: nothing is done
    to the hosts that lets a daemon outlive its claim.
    """
    kind = _dealt(random, peaceful=peaceful)
    if contained and not peaceful and kind.name in ("says_fatal", "fails_always"):
        return BY_NAME["daemon" if kind.name == "says_fatal" else "grandchild"]
    return BY_NAME["careful"] if harmless and kind.name == "nap" else kind


def _dealt(random: Random, *, peaceful: bool) -> TaskKind:
    number = random.randrange(10_000)
    for kind in KINDS:
        if number < kind.share:
            return BY_NAME["quick"] if peaceful and kind.breaks_its_process else kind
        number -= kind.share
    return BY_NAME["quick"]
