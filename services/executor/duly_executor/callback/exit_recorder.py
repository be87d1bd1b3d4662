"""Has a callback process write down which thread ends it, so that its neighbours are not taken for the cause."""

import faulthandler
import os
import threading
from typing import NoReturn


class ExitRecorder:
    """A memfd of the Executor's; exit_record.py there reads it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pid = os.getpid()
        self._exit = os._exit

    def listen(self) -> None:
        """Note fatal signals, and calls of os._exit; not those of what a callback forks."""
        faulthandler.enable(self._descriptor, all_threads=True)
        os.register_at_fork(after_in_child=faulthandler.disable)
        os._exit = self._note_exit

    def slot(self, slot: int) -> None:
        """The thread that calls this serves that slot."""
        self._write(f"slot {slot} is thread {threading.get_ident():#x}\n")

    def _note_exit(self, status: int) -> NoReturn:
        if os.getpid() == self._pid:
            self._write(f"os._exit in thread {threading.get_ident():#x}\n")
        self._exit(status)

    def _write(self, line: str) -> None:
        try:
            os.write(self._descriptor, line.encode())
        except OSError:  # a callback closed what is not its own
            return
