"""Sends items again whose cell did not answer, where those of other cells were done."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from duly.errors import DulyError, UnavailableError
from duly_wire.v1 import task_pb2

Item = TypeVar("Item")

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


def is_away(result: Any) -> bool:
    """Return whether the cell of an item did not answer: what became of the item is unknown."""
    return bool(result.error.code == task_pb2.ERROR_CODE_CELL_UNAVAILABLE)


async def sent_again(
    results: Sequence[Any],
    ask: Callable[[Sequence[Item], float], Awaitable[Sequence[Any]]],
    items: Sequence[Item],
    timeout_s: float,
) -> Sequence[Any]:
    """Return results in which those of cells that were away are replaced. After `timeout_s` some may be as they were.

    `ask` sends some of the items, and is told for how many seconds it may try.
    """
    if not any(map(is_away, results)):
        return results
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout_s
    results = list(results)
    longest_pause = _FIRST_PAUSE_S
    while away := [place for place, result in enumerate(results) if is_away(result)]:
        pause = random.uniform(longest_pause / 2, longest_pause)  # noqa: S311 (jitter is no secret)
        if clock() + pause >= deadline:
            break
        await asyncio.sleep(pause)
        longest_pause = min(2 * longest_pause, _LONGEST_PAUSE_S)
        try:
            again = await ask([items[place] for place in away], deadline - clock())
        except UnavailableError:  # none of their cells answers; the others' results are good
            break
        except DulyError:
            if len(away) == len(results):
                raise
            break
        for place, result in zip(away, again, strict=True):
            results[place] = result
    return results
