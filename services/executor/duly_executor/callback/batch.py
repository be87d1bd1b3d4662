"""The parts of a batch that runs: what stops it as a whole, and what its tasks are told each by itself."""

from collections.abc import Sequence

from duly.context import TaskContext
from duly_executor.callback.attempt import Attempt


class BatchContext:
    """What the attempt of a batch asks: it is cancelled when all of its tasks are, and interrupted as a whole."""

    def __init__(self) -> None:
        self.contexts: Sequence[TaskContext] = ()
        """Of its tasks that run."""
        self._interrupted = False

    @property
    def cancelled(self) -> bool:
        """Whether all of its tasks are to stop."""
        return bool(self.contexts) and all(each.cancelled for each in self.contexts)

    @property
    def interrupted(self) -> bool:
        """Whether the call was interrupted."""
        return self._interrupted

    def request_cancel(self) -> None:
        """Each task is told by itself."""

    def note_interruption(self) -> None:
        """Note that the call is interrupted."""
        self._interrupted = True


class BatchTask:
    """One task of a batch, as orders reach it."""

    __slots__ = ("_attempt", "_batch", "_context")

    def __init__(self, attempt: Attempt, batch: BatchContext, context: TaskContext) -> None:
        self._attempt = attempt
        self._batch = batch
        self._context = context

    def stop(self) -> None:
        """Ask for the end of this task; the call is asked to stop when each of its tasks is."""
        self._context.request_cancel()
        if self._batch.cancelled:
            self._attempt.stop()

    def note_interruption(self) -> None:
        """Note that the call is interrupted for this task's sake: the others are charged nothing."""
        self._context.note_interruption()

    def interrupt(self) -> None:
        """End the call."""
        self._attempt.interrupt()
