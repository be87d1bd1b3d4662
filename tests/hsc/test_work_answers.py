"""How many claimed tasks fit into one answer."""

from types import SimpleNamespace
from typing import cast

import pytest

from duly_core.tasks.task import ClaimedTask
from duly_hsc.work.answers import fitting

MOST_BYTES = 10_000


def tasks(*sizes: int, uses: int = 0) -> list[ClaimedTask]:
    """Return tasks with payloads of these sizes and so many attachments each: nothing else counts."""
    attachments = [{}] * uses or None
    return [
        cast(
            "ClaimedTask",
            SimpleNamespace(payload=bytes(size), checkpoint=None, attachments=attachments, received=None),
        )
        for size in sizes
    ]


@pytest.mark.parametrize(
    ("sizes", "number"),
    [((), 0), ((4_000, 4_000), 2), ((4_000, 4_000, 4_000), 2), ((20_000, 1), 1), ((1, 20_000), 1)],
)
def test_as_many_fit_as_an_answer_may_be_large_but_one_at_least(sizes: tuple[int, ...], number: int) -> None:
    assert fitting(tasks(*sizes), MOST_BYTES) == number


def test_a_task_without_payload_takes_room_too() -> None:
    assert fitting(tasks(*[0] * 100), MOST_BYTES) < 100


def test_attachments_take_room_too() -> None:
    assert fitting(tasks(0, 0, 0, uses=10), MOST_BYTES) == 2
