"""When single tasks are a stream."""

from itertools import count, takewhile

from duly_core.postgres.rate_detector import STREAM, STREAM_GAP, RateDetector

GAP = STREAM_GAP.total_seconds()


def fed(tasks: int, every: float, seconds: float) -> RateDetector:
    """A stream that was given so many tasks at a time."""
    stream = RateDetector()
    for now in takewhile(lambda at: at < seconds, (every * number for number in count())):
        stream.count(tasks, now)
    return stream


def test_the_first_tasks_are_no_stream_however_many() -> None:
    assert not fed(10_000, 1, seconds=0.5).is_high


def test_tasks_at_the_rate_of_a_stream_are_one_in_any_grouping() -> None:
    for tasks in (1, 3, 16):
        assert fed(tasks, 0.9 * tasks / STREAM, seconds=0.2).is_high
        assert not fed(tasks, 1.2 * tasks / STREAM, seconds=0.2).is_high


def test_two_tasks_in_one_moment_are_no_stream() -> None:
    stream = fed(1, 0.05, seconds=1)
    stream.count(1, 1.0001)
    stream.count(1, 1.0002)

    assert not stream.is_high


def test_a_task_long_after_a_stream_is_none_of_it() -> None:
    stream = fed(16, 0.005, seconds=0.2)
    assert stream.is_high

    stream.count(1, 0.2 + 20 * GAP)

    assert not stream.is_high
