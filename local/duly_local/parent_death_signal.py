"""Programs that are not ours are tied to our life: when this process dies, the kernel signals them."""

import ctypes
import os
import signal
import threading
from collections.abc import Callable

from duly_core.errors import DulyError

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def parent_death_signal(death_signal: signal.Signals) -> Callable[[], None]:
    """A `preexec_fn` by which the kernel sends the new process that signal when this one ends.

    Popen calls it after the change of user, which would otherwise clear the request.

    Raises:
        DulyError: called outside the main thread. The kernel means the *thread* that forked, so
            the program would be killed when that thread ends.
    """
    if threading.current_thread() is not threading.main_thread():
        raise DulyError("a program tied to our life must be started from the main thread")
    parent = os.getpid()
    number = int(death_signal)

    def tie() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it died before the request was made
            os._exit(1)

    return tie
