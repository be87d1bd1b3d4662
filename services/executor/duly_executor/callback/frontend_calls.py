"""Brings calls for a Frontend from a callback process to its Executor, which makes them: this process has no gRPC."""

import itertools
import os
import queue
import random
import threading
import time
from typing import Any, NamedTuple

from duly.attachments.in_parallel import LOOK_S
from duly.attachments.service import Method, Response, error_of_status, is_retried, serialized
from duly.errors import DulyError, UnavailableError
from duly_executor.callback.report_sender import ReportSender
from duly_wire.v1 import callback_pb2

MOST_CALLS = 4
"""Under way in one process, each with a part of 4 MiB. The Executor refuses more."""
_PATIENCE_S = 120.0
"""A call is repeated for so long."""
_LONGEST_ANSWER_S = 90.0
"""Longer than the Executor waits for the Frontend."""
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0


class _Waiting(NamedTuple):
    """A call under way."""

    answers: queue.SimpleQueue[callback_pb2.AttachmentAnswer]
    ends_at: float
    """On the monotonic clock."""


class FrontendCalls:
    """The calls of all tasks of this process; any thread may make one."""

    def __init__(self, report_sender: ReportSender) -> None:
        self._report_sender = report_sender
        self._pid = os.getpid()
        self._numbers = itertools.count(1)
        self._free = threading.Condition()
        self._under_way: dict[int, _Waiting] = {}
        """By number. One that an interrupt left here counts no more when its time is over."""

    def for_task(self, task_id: bytes) -> "_OfTask":
        """Return what makes the calls for one task."""
        return _OfTask(self, task_id)

    def answer(self, answer: callback_pb2.AttachmentAnswer) -> None:
        """Hand an answer to the thread that waits for it."""
        waiting = self._under_way.get(answer.call)
        if waiting is not None:
            waiting.answers.put(answer)

    def ask(self, task_id: bytes, method: str, request: bytes) -> callback_pb2.AttachmentAnswer | None:
        """Make one call, and wait for the answer; None: none came in time.

        It waits in small steps: a thread that is interrupted must come to know of it.
        """
        if os.getpid() != self._pid:
            raise DulyError(
                "a forked process sends and fetches no attachments, and makes no addresses: do it before the fork"
            )
        number = next(self._numbers)
        try:
            waiting = self._take_turn(number)
            self._report_sender.attachment_call(
                callback_pb2.AttachmentCall(call=number, task_id=task_id, method=method, request=request)
            )
            while time.monotonic() < waiting.ends_at:
                try:
                    return waiting.answers.get(timeout=LOOK_S)
                except queue.Empty:
                    continue
            return None
        finally:
            with self._free:
                self._under_way.pop(number, None)
                self._free.notify()

    def _take_turn(self, number: int) -> "_Waiting":
        with self._free:
            while True:
                now = time.monotonic()
                for late in [each for each, one in self._under_way.items() if one.ends_at < now]:
                    del self._under_way[late]
                if len(self._under_way) < MOST_CALLS:
                    waiting = self._under_way[number] = _Waiting(queue.SimpleQueue(), now + _LONGEST_ANSWER_S)
                    return waiting
                self._free.wait(LOOK_S)


class _OfTask:
    """An AttachmentService for one task."""

    calls_at_a_time = MOST_CALLS

    def __init__(self, calls: FrontendCalls, task_id: bytes) -> None:
        self._calls = calls
        self._task_id = task_id

    def check(self) -> None:
        """The callback's thread is interrupted where it is."""

    def call(self, method: Method[Response], request: Any) -> Response:
        """Make a call until it is answered."""
        sent = serialized(request)
        end = time.monotonic() + _PATIENCE_S
        pause = _FIRST_PAUSE_S
        while True:
            answer = self._calls.ask(self._task_id, method.name, sent)
            if answer is None:
                raise UnavailableError("the Executor did not answer in time")
            if not answer.HasField("error"):
                return method.response.FromString(answer.response)
            error = answer.error
            if error.HasField("retry_after"):
                pause = max(pause, error.retry_after.ToTimedelta().total_seconds())
            if not is_retried(error) or time.monotonic() + pause >= end:
                raise error_of_status(error)
            time.sleep(random.uniform(pause / 2, pause))  # noqa: S311 (jitter is no secret)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
