"""The kernel ends this process at a given instant, whatever Python does by then.

`timer_create(CLOCK_BOOTTIME, SIGEV_SIGNAL, SIGKILL)`: it fires while the GIL is held and while the process
is stopped; a thread or SIGALRM would do neither. Callback processes follow by PR_SET_PDEATHSIG.
"""

import ctypes
import signal
import time

_SIGEV_SIGNAL = 0
_TIMER_ABSTIME = 1
_SIGEVENT_BYTES = 64
_SECOND_NS = 1_000_000_000


class _SigEvent(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        (
            "padding",
            ctypes.c_char
            * (_SIGEVENT_BYTES - ctypes.sizeof(ctypes.c_void_p) - 2 * ctypes.sizeof(ctypes.c_int)),
        ),
    )


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _TimerSpec(ctypes.Structure):
    _fields_ = (("interval", _TimeSpec), ("value", _TimeSpec))


class KillTimer:
    """One kernel timer; disarmed when made. It is not inherited by forks and ends at exec."""

    def __init__(self) -> None:
        """Make the timer.

        Raises:
            OSError: the kernel refuses; nothing may be run without it.
        """
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = ctypes.c_void_p()
        event = _SigEvent(signo=signal.SIGKILL, notify=_SIGEV_SIGNAL)
        self._check(
            self._libc.timer_create(time.CLOCK_BOOTTIME, ctypes.byref(event), ctypes.byref(self._timer))
        )

    def arm(self, boot_ns: int | None) -> None:
        """Die at this instant of CLOCK_BOOTTIME (nanoseconds); None: not at all."""
        seconds, nanoseconds = divmod(max(1, boot_ns), _SECOND_NS) if boot_ns is not None else (0, 0)
        spec = _TimerSpec(value=_TimeSpec(seconds, nanoseconds))
        self._check(self._libc.timer_settime(self._timer, _TIMER_ABSTIME, ctypes.byref(spec), None))

    @staticmethod
    def _check(result: int) -> None:
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, "the kernel's timer cannot be set")
