"""What a callback process tells its Executor: everything that came up since the last frame goes as one."""

import os
import socket
import threading
from collections.abc import Iterator

from duly.v1 import callback_pb2, hsc_pb2
from duly_core.task import TaskId
from duly_executor import frames

_NOTE_CHARACTERS = 1_024
"""Of a progress note; the Executor keeps fewer still."""


class Outbox:
    """Any thread may put something in; one thread sends."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._filled = threading.Event()
        self._report = callback_pb2.CallbackReport()
        self._progress: dict[TaskId, callback_pb2.CallbackProgress] = {}

    def result(self, result: hsc_pb2.TaskResult) -> None:
        """An attempt ended."""
        with self._lock:
            self._report.results.append(result)
            self._progress.pop(result.claim.task_id, None)
        self._filled.set()

    def unstarted(self, task_id: TaskId) -> None:
        """A task will not be started here."""
        with self._lock:
            self._report.unstarted.append(task_id)
        self._filled.set()

    def recalled(self) -> None:
        """A recall was obeyed: this process is well, whatever it had to give back."""
        with self._lock:
            self._report.recalled = True
        self._filled.set()

    def progress(self, task_id: TaskId, fraction: float, note: str) -> None:
        """A callback told how far it is; only the newest counts."""
        with self._lock:
            self._progress[task_id] = callback_pb2.CallbackProgress(
                task_id=task_id, progress=fraction, note=note[:_NOTE_CHARACTERS]
            )
        self._filled.set()

    def send_for_ever(self) -> None:
        """Send until the Executor is gone."""
        while True:
            self._filled.wait()
            with self._lock:
                self._filled.clear()
                report, self._report = self._report, callback_pb2.CallbackReport()
                report.progress.extend(self._progress.values())
                self._progress.clear()
            try:
                for part in parts(report):
                    self._link.sendall(frames.write(part))
            except OSError:
                os._exit(os.EX_IOERR)  # the Executor is gone, or a callback closed what is not its own


def parts(report: callback_pb2.CallbackReport) -> Iterator[callback_pb2.CallbackReport]:
    """The report in frames that the Executor takes; all but results goes with the last."""
    *some, last = frames.divided(report.results)
    for results in some:
        yield callback_pb2.CallbackReport(results=results)
    yield callback_pb2.CallbackReport(
        results=last, progress=report.progress, unstarted=report.unstarted, recalled=report.recalled
    )
