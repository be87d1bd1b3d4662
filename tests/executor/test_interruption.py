"""Where a callback's thread is interrupted: not while it takes a lock that others share."""

import logging
import queue
import threading
from collections.abc import Callable

import pytest

import duly
from duly.context import TaskContext
from duly_executor.callback.attempt import AsyncLoop, Attempt
from duly_wire.v1 import task_pb2
from tests.fixtures.host import claimed

ROUNDS = pytest.mark.parametrize(
    "rounds",
    # long: the same at more instants
    [pytest.param(20, id="a few"), pytest.param(60, id="many", marks=pytest.mark.long)],
)
WITHIN = 20


def interrupt(work: Callable[[], object]) -> None:
    """Have a callback do this again and again, and interrupt it."""
    app = duly.App(owner="tests")
    task = claimed("test.work")
    running: list[Attempt] = []
    ends: list[int] = []
    started = threading.Event()

    @app.callback("test.work")
    def callback() -> None:
        started.set()
        while True:
            work()

    def run() -> None:
        context = TaskContext.for_task(task, lambda _done, _note: None)
        running.append(Attempt(task, context, AsyncLoop()))
        ends.append(running[0].run(app.callbacks["test.work"], context).failure_kind)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(WITHIN)
    running[0].interrupt()
    thread.join(WITHIN)
    assert ends == [task_pb2.FAILURE_KIND_MAX_RUNTIME]


@ROUNDS
def test_an_interruption_leaves_no_queue_locked(rounds: int) -> None:
    for _ in range(rounds):
        shared: queue.Queue[int] = queue.Queue(5)

        def work(shared: queue.Queue[int] = shared) -> None:
            shared.put(1)
            shared.get()
            sum(range(50))

        interrupt(work)

        assert not shared.mutex.locked()


@ROUNDS
def test_an_interruption_leaves_no_logging_handler_locked(rounds: int) -> None:
    for _ in range(rounds):
        with open("/dev/null", "w", encoding="utf-8") as nowhere:  # noqa: PTH123 (it is a device)
            handler = logging.StreamHandler(nowhere)
            logger = logging.getLogger("tests.interruption")
            logger.handlers = [handler]  # not those of earlier rounds: their file is closed
            logger.setLevel(logging.INFO)
            logger.propagate = False

            def work(logger: logging.Logger = logger) -> None:
                logger.info("part %d is done", 3)
                sum(range(200))

            interrupt(work)

            assert handler.lock is not None
            assert handler.lock.acquire(blocking=False)
            handler.release()


def test_a_callback_that_waits_in_the_standard_library_is_interrupted_when_it_returns() -> None:
    event = threading.Event()

    def wait() -> None:
        event.wait(0.5)

    interrupt(wait)

    assert not event._cond._lock.locked()  # type: ignore[attr-defined]
