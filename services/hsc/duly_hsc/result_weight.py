"""How many of a statement's items the results of a call count for: what they carry is written with them."""

from collections.abc import Sequence

from duly_core.tasks.task import Result

_WEIGHTY = 16 * 1024
"""Bytes that count for another item."""


def weight_of(results: Sequence[Result]) -> int:
    """Return how many items these results count for: themselves, the tasks that they schedule, and the bytes of both."""
    return (
        len(results)
        + sum(len(result.result) for result in results if result.result) // _WEIGHTY
        + sum(map(_weight_of_children, results))
    )


def _weight_of_children(result: Result) -> int:
    if not result.writes_tasks:
        return 0
    tasks = [*result.children, *(each.task for each in result.nodes)]
    return len(tasks) + sum(len(task.payload) for task in tasks) // _WEIGHTY
