"""What a callback process tells its Executor: everything that came up since the last frame goes as one."""

import os
import socket
import threading
from collections.abc import Iterator, Sequence

from duly_executor.processes import frames
from duly_wire.ids import TaskId
from duly_wire.v1 import callback_pb2, hsc_pb2

_MOST_OUTPUT = 256
"""Chunks of output that wait for the Executor: 8 MiB at most."""
_NOTE_CHARACTERS = 1_024
"""Of a progress note; the Executor keeps fewer still."""


class ReportSender:
    """Any thread may put something in; one thread sends.

    Results are serialized by the slot whose they are, and their messages are copied no more. They need no lock:
    any thread appends to their list, and the one that sends takes from its front.
    """

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._filled = threading.Event()
        self._results: list[bytes] = []
        self._rest = callback_pb2.SerializedReport()
        """All but results and progress."""
        self._progress: dict[TaskId, callback_pb2.CallbackProgress] = {}
        self._checkpoints: dict[TaskId, callback_pb2.CallbackCheckpoint] = {}
        self._frontend_calls: list[callback_pb2.AttachmentCall] = []
        self._output: list[callback_pb2.CallbackOutput] = []
        """As results: any thread appends, and needs no lock."""

    def result(self, task_id: TaskId, result: hsc_pb2.TaskResult) -> None:
        """An attempt ended."""
        serialized = result.SerializeToString()
        self._results.append(serialized)
        if self._progress:
            with self._lock:
                self._progress.pop(task_id, None)
        self._wake()

    def batch_ended(self, results: Sequence[hsc_pb2.TaskResult]) -> None:
        """A call ended that ran these; they go together."""
        self._results += [result.SerializeToString() for result in results]
        if self._progress:
            with self._lock:
                for result in results:
                    self._progress.pop(result.claim.task_id, None)
        self._wake()

    def unstarted(self, task_id: TaskId) -> None:
        """A task will not be started here."""
        with self._lock:
            self._rest.unstarted.append(task_id)
        self._wake()

    def recalled(self) -> None:
        """A recall was obeyed: this process is well, whatever it had to give back."""
        with self._lock:
            self._rest.recalled = True
        self._wake()

    def progress(self, task_id: TaskId, fraction: float, note: str) -> None:
        """A callback told how far it is; only the newest counts."""
        with self._lock:
            self._progress[task_id] = callback_pb2.CallbackProgress(
                task_id=task_id, progress=fraction, note=note[:_NOTE_CHARACTERS]
            )
        self._wake()

    def checkpoint(self, task_id: TaskId, data: bytes) -> None:
        """A callback keeps this for its next attempt; only the last counts."""
        with self._lock:
            self._checkpoints[task_id] = callback_pb2.CallbackCheckpoint(task_id=task_id, checkpoint=data)
        self._wake()

    def attachment_call(self, call: callback_pb2.AttachmentCall) -> None:
        """A callback asks for something of AttachmentService."""
        with self._lock:
            self._frontend_calls.append(call)
        self._wake()

    def takes_output(self) -> bool:
        """Whether more output may be put in: not while the Executor does not read what is there."""
        return len(self._output) < _MOST_OUTPUT

    def output(self, output: list[callback_pb2.CallbackOutput]) -> None:
        """Callbacks wrote this. It goes before the results that are put in later."""
        if output:
            self._output += output
            self._wake()

    def send_for_ever(self) -> None:
        """Send until the Executor is gone."""
        while True:
            self._filled.wait()
            self._filled.clear()
            # before the rest: what a callback kept goes before its result, or with it
            results = self._results[:]
            del self._results[: len(results)]
            output = self._output[:]
            del self._output[: len(output)]
            with self._lock:
                rest, self._rest = self._rest, callback_pb2.SerializedReport()
                rest.progress.extend(self._progress.values())
                self._progress.clear()
                checkpoints = list(self._checkpoints.values())
                self._checkpoints.clear()
                calls, self._frontend_calls = self._frontend_calls, []
            try:
                if output:
                    for each in frames.divided(output, callback_pb2.CallbackOutput.ByteSize):
                        self._link.sendall(frames.write(callback_pb2.SerializedReport(output=each)))
                if checkpoints:
                    weigh = callback_pb2.CallbackCheckpoint.ByteSize
                    for some in frames.divided(checkpoints, weigh):
                        self._link.sendall(frames.write(callback_pb2.SerializedReport(checkpoints=some)))
                for part in parts(results, rest):
                    if part.ByteSize():  # else output, checkpoints or calls were all there was
                        self._link.sendall(frames.write(part))
                for call in calls:
                    self._link.sendall(frames.write(callback_pb2.SerializedReport(attachment_calls=[call])))
            except OSError:
                os._exit(os.EX_IOERR)  # the Executor is gone, or a callback closed what is not its own

    def _wake(self) -> None:
        if not self._filled.is_set():  # to set it again takes a lock
            self._filled.set()


def parts(
    results: list[bytes], rest: callback_pb2.SerializedReport
) -> Iterator[callback_pb2.SerializedReport]:
    """The report in frames that the Executor takes; all but results goes with the last."""
    *some, last = frames.divided(results, len)
    for each in some:
        yield callback_pb2.SerializedReport(results=each)
    rest.results.extend(last)
    yield rest
