"""Task ids: UUIDv7, so that ids sort by the time they were made."""

import os
import struct
import threading
import time
from collections.abc import Iterator
from itertools import accumulate
from uuid import UUID

_RANDOM_BITS = 62
_RANDOM_MASK = (1 << _RANDOM_BITS) - 1
_VARIANT = 0b10 << 62
_VERSION_AND_VARIANT = 0x7 << 76 | _VARIANT
_LEAPS = struct.Struct("256I")


_ONE_MORE = (1).__add__
_LAST_BITS = 48
_LAST_MASK = (1 << _LAST_BITS) - 1


def _before_last(millisecond: int, tail: int) -> str:
    """Return the text of an id without its last twelve digits."""
    high = f"{millisecond >> 16:08x}-{millisecond & 0xFFFF:04x}-{tail >> _RANDOM_BITS | 0x7000:04x}"
    return f"{high}-{(tail & _RANDOM_MASK | _VARIANT) >> _LAST_BITS:04x}-"


class _Generator:
    """Makes ids that only ever grow within this process (RFC 9562, method 2: a random, counting tail)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._millisecond = 0
        self._tail = 0
        # Drawn many at a time: a system call for each id took a third of what an id costs.
        self._leaps: list[int] = []

    def next(self) -> int:
        with self._lock:
            self._go_on()
            millisecond, tail = self._millisecond, self._tail
        # 48 bits of time, version, 12 bits of tail, variant, 62 bits of tail.
        return millisecond << 80 | (tail >> _RANDOM_BITS) << 64 | (tail & _RANDOM_MASK) | _VERSION_AND_VARIANT

    def next_texts(self, count: int) -> list[str]:
        """Return so many ids as text: of 256 each takes a quarter of the time of one alone."""
        leaps = struct.unpack(f"{count - 1}I", os.urandom(4 * (count - 1)))
        with self._lock:
            self._go_on()
            millisecond = self._millisecond
            # an id of a later millisecond is greater than all of these, as its time is
            tails = [*accumulate(map(_ONE_MORE, leaps), initial=self._tail)]
            self._tail = tails[-1]
        if tails[0] >> _LAST_BITS != tails[-1] >> _LAST_BITS:
            return [f"{_before_last(millisecond, tail)}{tail & _LAST_MASK:012x}" for tail in tails]
        before_last = _before_last(millisecond, tails[0])
        return [f"{before_last}{tail & _LAST_MASK:012x}" for tail in tails]

    def _go_on(self) -> None:
        now = time.time_ns() // 1_000_000
        if now > self._millisecond:
            self._millisecond = now
            # The top bit stays clear, so that the tail has room to count within this millisecond.
            self._tail = int.from_bytes(os.urandom(10)) >> 7
        else:
            # The same millisecond, or a clock set back: go on from the last id by a random leap.
            if not self._leaps:
                self._leaps.extend(_LEAPS.unpack(os.urandom(_LEAPS.size)))
            self._tail += 1 + self._leaps.pop()


_generator = _Generator()

TaskId = bytes
"""A UUIDv7's 16 bytes; text only at the edges."""


def _renew() -> None:
    # A forked child must neither repeat its parent's tail nor inherit its lock.
    global _generator
    _generator = _Generator()


os.register_at_fork(after_in_child=_renew)


def new_task_id() -> UUID:
    """Return a new UUIDv7, greater than every id this process has made before."""
    return UUID(int=_generator.next())


def new_task_id_text() -> str:
    """Return such an id as text, without the cost of a UUID object."""
    return id_text(_generator.next().to_bytes(16))


def id_text(task_id: bytes) -> str:
    """Return the text of an id, without the cost of a UUID object."""
    digits = task_id.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def new_task_id_texts() -> Iterator[str]:
    """Yield such ids without end, made several at a time: more and more, up to 256. Those that are not used are lost."""
    count = 8
    while True:
        yield from _generator.next_texts(count)
        count = min(2 * count, 256)
