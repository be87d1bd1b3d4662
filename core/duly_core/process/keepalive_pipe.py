"""How a service outlives the process that started it, for as long as others need the service.

Those others inherit the writing end of a pipe and hold it open. The service has the reading end: its end of file says
that nobody is left. A supervisor that is killed cannot stop its children in order; this does.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Self

import structlog

from duly_core.process.parent import KEEPALIVE_PIPE

log = structlog.get_logger()

PARENT_DIED = signal.SIGUSR1
"""What the kernel sends when our parent dies; before there is a handler, it ends us.

It is not SIGTERM: a dying parent with several threads makes the kernel send it once for each, and a second SIGTERM means
that whoever drains should hurry.
"""


class KeepalivePipe:
    """The reading end of the pipe."""

    def __init__(self, descriptor: int, longest: timedelta) -> None:
        self._descriptor = descriptor
        self._longest = longest
        self._outliving = False

    @classmethod
    def from_environment(cls) -> Self | None:
        """Return the one that the parent passed on, if it did; not for our own children."""
        told = os.environ.pop(KEEPALIVE_PIPE, None)
        if told is None:
            return None
        descriptor, _, seconds = told.partition(":")
        os.set_inheritable(int(descriptor), False)
        return cls(int(descriptor), timedelta(seconds=float(seconds)))

    def watch(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        """Call `stop` when nobody needs the service, or when the parent has been dead for too long."""

        def nobody_is_left() -> None:
            loop.remove_reader(self._descriptor)
            stop()
            log.info("parent process ended, and no process needs this one: stopping")

        def outlive() -> None:
            if self._outliving:  # one of the parent's other threads died, too
                return
            self._outliving = True
            loop.call_later(self._longest.total_seconds(), stop)
            log.warning("parent process died: running on while other processes need this one")

        loop.add_signal_handler(PARENT_DIED, outlive)
        loop.add_reader(self._descriptor, nobody_is_left)
