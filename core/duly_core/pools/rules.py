"""What a pool of workers is, and which tasks its workers run. No I/O."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from duly_core.lambdas.patterns import covers, shared
from duly_wire.queue_names import QueueName

POOL_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
NO_POOL_NAME = "must be 1 to 63 of a-z, 0-9, '_', '.', '-', the first a letter or a digit"
MOST_WORKERS = 10_000
"""Of a pool."""
MOST_SLOTS = 100_000
"""Of a worker."""
MOST_LAMBDAS = 100
"""Names and patterns that a pool may have."""
SHORTEST_TARGET, LONGEST_TARGET = timedelta(seconds=1), timedelta(days=1)
LONGEST_IDLE = timedelta(days=1)
SMALLEST_BUDGET, LARGEST_BUDGET = timedelta(minutes=1), timedelta(days=1) * MOST_WORKERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """What an operator declared of a pool."""

    name: str
    lambdas: tuple[str, ...]
    """Names, or patterns: a prefix that ends with `*`, or `*` alone."""
    labels: tuple[str, ...] = ()
    """What its workers have."""
    minimum: int = 0
    maximum: int
    slots: int = 1
    """Callbacks that a worker runs at a time, until its workers report how many they run."""
    target_age: timedelta = timedelta(seconds=30)
    """How long a due task may wait for a worker."""
    idle_time: timedelta = timedelta(minutes=1)
    """How long fewer workers must be enough before some are ended."""
    budget: timedelta | None = None
    """Worker time in a day of UTC; None: as much as it needs. The minimum runs in any case."""
    driver: str
    """The name of a driver that the autoscaler's own settings have."""
    driver_settings: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    def serves(self, queue: str) -> bool:
        """Whether its workers run the tasks of a queue: of its lambdas, and of no labels that they lack.

        >>> pool = Pool(name="video", lambdas=("video.*",), labels=("gpu",), maximum=5, driver="local")
        >>> [pool.serves(queue) for queue in ("video.cut", "video.cut@:gpu", "video.cut@:arm", "video.cut@~lab", "mail")]
        [True, True, False, False, False]
        """
        name = QueueName.parse(queue)
        if name.domain or not name.required <= {*self.labels}:
            return False
        return any(covers(pattern, name.lambda_name) for pattern in self.lambdas)

    def shares(self, other: "Pool") -> list[str]:
        """Return the names and patterns that another pool is for, too. Both serve their tasks that require no label.

        >>> mail = Pool(name="a", lambdas=("mail.*", "hello"), maximum=5, driver="local")
        >>> mail.shares(Pool(name="b", lambdas=("mail.send", "hello", "video"), maximum=5, driver="local"))
        ['mail.send', 'hello']
        """
        both = [found for mine in self.lambdas for each in other.lambdas if (found := shared(mine, each))]
        return [*dict.fromkeys(both)]


POOL_FIELDS = (
    "lambdas",
    "labels",
    "minimum",
    "maximum",
    "slots",
    "target_age",
    "idle_time",
    "budget",
    "driver",
    "driver_settings",
    "note",
)
"""What a change may name."""

NEEDED = ("lambdas", "maximum", "driver")
"""Fields that a pool cannot be without."""


def served_by(pools: Iterable[Pool], queue: str) -> list[Pool]:
    """Return the pools whose workers run the tasks of a queue."""
    return [pool for pool in pools if pool.serves(queue)]
