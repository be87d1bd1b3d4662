"""The one loop: it goes on after any bad round, wakes when it is told to, and stops when it must."""

import asyncio
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from duly_core.errors import QueueUnavailableError, StoreUnavailableError
from duly_core.process.loop import LONGEST_BACKOFF, backoff, repeat, wait_for

HOUR = timedelta(hours=1)
NOW = timedelta()
DEADLINE = 5


class Rounds:
    """Runs what a test lists, one entry a round: an error to raise or a pause to answer; then stops."""

    def __init__(self, *script):
        self.script = list(script)
        self.stop, self.wake = asyncio.Event(), asyncio.Event()
        self.count = 0
        self.began = asyncio.Event()

    async def __call__(self):
        self.count += 1
        self.began.set()
        step = self.script.pop(0)
        if not self.script:
            self.stop.set()
        if isinstance(step, Exception):
            raise step
        return step

    async def run(self):
        with capture_logs() as logs:
            await asyncio.wait_for(repeat("test", self, self.stop, self.wake), DEADLINE)
        return logs


async def test_rounds_follow_each_other_at_once_while_there_is_something_to_do():
    rounds = Rounds(NOW, NOW, NOW, NOW)

    await rounds.run()

    assert rounds.count == 4


@pytest.mark.parametrize("error", [StoreUnavailableError("away"), QueueUnavailableError("away")])
async def test_an_outage_is_told_in_a_line_and_tried_again(error):
    logs = await Rounds(error, NOW, HOUR).run()

    assert [line["event"] for line in logs] == ["round failed", "works again"]
    assert logs[0] | {"loop": "test", "failures": 1, "reason": "away", "log_level": "warning"} == logs[0]
    assert logs[1]["after_failures"] == 1


async def test_no_error_whatever_ends_the_loop():
    rounds = Rounds(ZeroDivisionError(), RuntimeError("bug"), NOW, HOUR)

    logs = await rounds.run()

    assert rounds.count == 4
    assert [line["log_level"] for line in logs] == ["error", "error", "info"]
    assert logs[0]["exc_info"]


async def test_a_wake_up_cuts_the_pause_short():
    rounds = Rounds(HOUR, HOUR)
    running = asyncio.ensure_future(rounds.run())
    await rounds.began.wait()
    assert rounds.count == 1

    rounds.wake.set()

    await running
    assert rounds.count == 2


async def test_a_wake_up_during_a_round_is_not_lost():
    rounds = Rounds(HOUR, HOUR)
    step = rounds.__call__

    async def woken_meanwhile():
        rounds.wake.set()
        return await step()

    await asyncio.wait_for(repeat("test", woken_meanwhile, rounds.stop, rounds.wake), DEADLINE)

    assert rounds.count == 2


async def test_a_stop_ends_the_pause_and_no_round_follows():
    rounds = Rounds(HOUR, HOUR)
    running = asyncio.ensure_future(rounds.run())
    await rounds.began.wait()

    rounds.stop.set()

    await running
    assert rounds.count == 1


async def test_waiting_for_an_event_tells_whether_it_came():
    event = asyncio.Event()

    assert not await wait_for(event, timedelta(milliseconds=1))
    assert not await wait_for(event, timedelta(seconds=-1))
    event.set()
    assert await wait_for(event, HOUR)


@pytest.mark.parametrize("failures", [1, 2, 5, 10, 100, 10**6])
def test_a_backoff_grows_up_to_its_longest_and_is_never_nothing(failures):
    waits = [backoff(failures) for _ in range(50)]

    longest = min(LONGEST_BACKOFF, timedelta(milliseconds=50) * 2 ** min(failures, 10))
    assert all(longest / 2 <= wait <= longest for wait in waits)
    assert len(set(waits)) > 1
