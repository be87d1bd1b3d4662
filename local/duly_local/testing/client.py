"""The client of a test: its waits step the clock, for nothing happens in a test by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import duly
from duly_local.testing.errors import DulyTestError, check_type

if TYPE_CHECKING:
    from duly.callbacks.codec import Codec
    from duly_local.testing.stack import TestStack

_AT_ONCE = timedelta()
_TOLD = 5


class TestClient(duly.Client):
    """As `duly.Client`; `wait`, `wait_many` and `wait_graph` run what is due, and step the clock until the end has come.

    With a `timeout` they step no further than that, and raise what the client raises then.
    """

    __test__ = False  # to pytest

    def __init__(self, stack: TestStack, codec: Codec | None) -> None:
        """Make one for the services of a test."""
        super().__init__(stack.address, codec=codec)
        self._stack = stack

    def wait(self, task: Any, timeout: timedelta | None = None, *, raise_on_failure: bool = False) -> Any:
        """Return the task once it is final."""
        self._step([task], timeout)
        try:
            return super().wait(task, _AT_ONCE, raise_on_failure=raise_on_failure)
        except duly.WaitTimeoutError as error:
            raise _late(error, timeout) from None

    def wait_many(
        self, tasks: Iterable[Any], timeout: timedelta | None = None, *, raise_on_failure: bool = False
    ) -> Any:
        """Return the tasks, in order, once all are final."""
        named = [*tasks]
        self._step(named, timeout)
        try:
            return super().wait_many(named, _AT_ONCE, raise_on_failure=raise_on_failure)
        except duly.WaitTimeoutError as error:
            raise _late(error, timeout) from None

    def wait_graph(self, graph: Any, timeout: timedelta | None = None) -> Any:
        """Return the graph once all of its nodes have ended."""
        self._step_until(
            lambda: self.get_graph(graph, nodes=False).status is not duly.GraphStatus.RUNNING,
            timeout,
            lambda: f"the graph {graph} has not ended",
        )
        return super().wait_graph(graph, _AT_ONCE)

    def _step(self, tasks: list[Any], timeout: timedelta | None) -> None:
        def left() -> duly.Task | None:
            found = self.get_many(tasks)
            return next((task for task in found if task is not None and not task.status.is_final), None)

        def why() -> str:
            task = left()
            if task is None:
                return "the task has ended"
            reasons = self.explain(task.task_id, history=False).reasons
            return f"{task.lambda_name} {task.task_id} is {task.status.name}: {'; '.join(each.text for each in reasons)}"

        self._step_until(lambda: left() is None, timeout, why)

    def _step_until(
        self, has_ended: Callable[[], bool], timeout: timedelta | None, why: Callable[[], str]
    ) -> None:
        if timeout is not None:
            check_type("timeout", timeout, timedelta, "timedelta(days=7)")
        if self._stack.is_running:
            return  # a callback waits: nothing else can run before it ends
        if not self._stack.step_until(has_ended, timeout) and timeout is None:
            raise DulyTestError(f"nothing more happens by itself, and {why()}")


def _late(error: duly.WaitTimeoutError, timeout: timedelta | None) -> duly.WaitTimeoutError:
    """Return the error that says how far the clock was stepped: the client itself has not waited at all."""
    tasks = [task for task in error.tasks if not task.status.is_final]
    named = ", ".join(f"{task.lambda_name} {task.task_id} ({task.status})" for task in tasks[:_TOLD])
    more = f" and {len(tasks) - _TOLD} more" if len(tasks) > _TOLD else ""
    how = (
        "while this callback runs, for no other can run before it ends"
        if timeout is None
        else f"within {timeout} of the stepped clock"
    )
    return duly.WaitTimeoutError(f"not final {how}: {named}{more}", error.tasks)
