"""Bursts of tasks with fair keys: one key floods its lambda, the others come a moment later, and weights change meanwhile."""

from random import Random

import duly
from tests.chaos.kinds import BY_NAME

LAMBDA = BY_NAME["fair"].lambda_name
KEYS = ("", "ann", "bob", "eve")
"""The first is that of the tasks without a key."""
MOST_WEIGHT = 3
AFTER_S = (0.1, 0.6)
"""The tasks of the other keys come so long after the flood."""
_FLOOD, _FEW = 150, 3
_SLOTFULS, _MOST = 4, 300
"""A flood fills all slots so many times, if they are not very many: what comes after it must wait."""


def choose_burst(random: Random, slots: int) -> tuple[list[duly.NewTask], list[duly.NewTask]]:
    """Return the flood of one key, and the few tasks of each of the others."""
    flooding = random.choice(KEYS)
    few = [_task(random, key) for key in KEYS if key != flooding for _ in range(_FEW)]
    random.shuffle(few)
    flood = min(_MOST, max(_FLOOD, _SLOTFULS * slots))
    return [_task(random, flooding) for _ in range(flood)], few


def choose_weights(random: Random) -> dict[str, int | None]:
    """Return another weight for some keys; None: that of a key without one."""
    return {
        key: random.choice((None, *range(1, MOST_WEIGHT + 1)))
        for key in random.sample(KEYS, random.randint(1, 3))
    }


def _task(random: Random, key: str) -> duly.NewTask:
    payload = BY_NAME["fair"].payload(random)
    return duly.NewTask(LAMBDA, payload, duly.Priority.NORMAL, fair_key=key or None)
