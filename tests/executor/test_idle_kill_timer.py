"""The kernel's timer of an Executor that holds nothing."""

from duly_core.process.clock import since_boot_ns
from duly_executor.claims.heartbeat import HeartbeatLoop

SECOND = 1_000_000_000


class Claims:
    def __init__(self, deadline: int | None) -> None:
        self._deadline = deadline

    def earliest_deadline(self) -> int | None:
        return self._deadline


class Timer:
    def __init__(self) -> None:
        self.armed: list[int | None] = []

    def arm(self, boot_ns: int | None) -> None:
        self.armed.append(boot_ns)


def test_an_idle_executor_whose_loop_stands_still_is_ended_within_a_minute():
    timer = Timer()

    HeartbeatLoop(None, Claims(None), None, timer, None).rearm()

    (armed,) = timer.armed
    assert 50 * SECOND < armed - since_boot_ns() <= 60 * SECOND


def test_a_claim_ends_it_at_its_deadline():
    timer = Timer()

    HeartbeatLoop(None, Claims(12_345), None, timer, None).rearm()

    assert timer.armed == [12_345]
