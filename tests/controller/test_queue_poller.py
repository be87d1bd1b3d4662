"""What the Controller takes from a queue, and what it gives back because nobody here wants it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import timedelta

import pytest

from duly_controller import work_requests as demand_module
from duly_controller.queue_poller import QueuePoller
from duly_controller.reference_buffer import ReferenceBuffer
from duly_controller.work_requests import WorkRequests
from duly_core.lambdas.names import QueueKey
from duly_core.queues.port import Received
from duly_wire.enums import Priority

QUEUE = QueueKey("mail", Priority.NORMAL)
MAIL = frozenset({"mail"})


class FullQueue:
    """One queue with messages of so many references each, and no others."""

    def __init__(self, references: int) -> None:
        self.references = references
        self.asked: list[int] = []
        self.given_back: list[Received] = []
        self.changed = asyncio.Event()
        self._number = 0

    async def receive(self, queue: QueueKey, max_messages: int, wait: timedelta) -> list[Received]:
        if queue != QUEUE or self.asked:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait.total_seconds()):
                    await asyncio.Event().wait()
            return []
        self.asked.append(max_messages)
        return [
            self._message() for _ in range(10)
        ]  # more than was asked for, as if all had been small before

    def _message(self) -> Received:
        self._number += 1
        ids = tuple(f"{self._number:08}{place:08}".encode() for place in range(self.references))
        return Received(QUEUE, ids, str(self._number))

    async def give_back(self, messages: Sequence[Received]) -> None:
        self.given_back += messages
        self.changed.set()

    async def delete(self, messages: Sequence[Received]) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


class Polled:
    """A Poller at work."""

    def __init__(self, references: int) -> None:
        self.queue = FullQueue(references)
        self.buffer = ReferenceBuffer(0.0)
        self.work_requests = WorkRequests(self.buffer)
        self.poller = QueuePoller(
            self.queue, self.buffer, self.work_requests, timedelta(hours=1), asyncio.Event()
        )
        self.poller.serve(MAIL)


@pytest.fixture
async def polled() -> AsyncIterator[Polled]:
    made = Polled(references=100)
    yield made
    await made.poller.stop()


async def test_whole_messages_beyond_what_is_wanted_go_back_at_once(polled: Polled) -> None:
    with polled.work_requests.asking(MAIL, 8):
        async with asyncio.timeout(5):
            await polled.queue.changed.wait()

        assert polled.queue.asked == [1]
        assert polled.buffer.size(QUEUE) == 100
        assert len(polled.queue.given_back) == 9


async def test_what_nobody_asks_for_any_more_goes_back_but_not_what_was_begun(
    polled: Polled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demand_module, "_FORGOTTEN_SECONDS", 0.0)
    with polled.work_requests.asking(MAIL, 75):
        async with asyncio.timeout(5):
            await polled.queue.changed.wait()
        polled.queue.changed.clear()
        begun = polled.buffer.take(MAIL, 1, not_before=0)[0].message.received

    async with asyncio.timeout(5):
        await polled.queue.changed.wait()

    assert begun not in polled.queue.given_back
    assert polled.buffer.size(QUEUE) == 99


async def test_the_polls_survive_the_last_executor(polled: Polled) -> None:
    polled.poller.serve(frozenset())

    with polled.work_requests.asking(MAIL, 8):
        async with asyncio.timeout(5):
            await polled.work_requests.arrival()
