"""The one clock that a process may measure deadlines with: time since boot, suspend included.

Wall-clock decisions are the database's alone (`duly_now()` in the store).
"""

import time
from datetime import timedelta


def since_boot_ns() -> int:
    """CLOCK_BOOTTIME in nanoseconds: unlike CLOCK_MONOTONIC it goes on while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def seconds_since_boot() -> float:
    """The same in seconds, for what needs no more."""
    return since_boot_ns() / 1e9


def nanoseconds(duration: timedelta) -> int:
    """A duration in nanoseconds, for arithmetic with `since_boot_ns`."""
    return (duration // timedelta(microseconds=1)) * 1000
