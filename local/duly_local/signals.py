"""Asking this process to stop: Ctrl-C, SIGTERM, and the terminal's end."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from duly_core.errors import DulyError

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StoppedWhileStartingError(DulyError):
    """Somebody asked to stop before there was much to stop."""


@contextmanager
def interruptible() -> Iterator[None]:
    """For code that blocks the loop, whose own signal handlers would have to wait for it.

    Raises:
        StoppedWhileStartingError: out of whatever the code was doing.
    """
    asked = False

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        nonlocal asked
        asked = True
        raise StoppedWhileStartingError("stopped while starting")

    former = {number: signal.signal(number, interrupt) for number in _heeded()}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    if asked:  # it hit code that nothing can be raised out of: a finalizer, a callback of the import system
        raise StoppedWhileStartingError("stopped while starting")


@contextmanager
def handled_by(request_stop: Callable[[], None]) -> Iterator[None]:
    """Have the running loop call it for each such signal."""
    loop = asyncio.get_running_loop()
    heeded = _heeded()
    for number in heeded:
        loop.add_signal_handler(number, request_stop)
    try:
        yield
    finally:
        for number in heeded:
            loop.remove_signal_handler(number)


def _heeded() -> list[signal.Signals]:
    """All but a SIGHUP that we were started to ignore: `nohup duly up` outlives its terminal."""
    ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else set()
    return [number for number in _STOP_SIGNALS if number not in ignored]
