"""Gives callback processes a pipe where this process's output is a socket, as under journald.

Whoever has a socket can shut it down for all that write to it: a callback could silence its worker for good.
"""

import os
import select
import stat
import threading
from contextlib import suppress

_MOST_BYTES = 64 * 1024
_relays: dict[tuple[int, int], int] = {}
"""By a socket's device and inode: the end of the pipe that is written to. Standard output and error may be one socket."""


def output_for_callbacks(descriptor: int) -> int | None:
    """Return what a callback process is to have in place of this descriptor; None: the same.

    Raises:
        OSError: there are no more descriptors.
    """
    try:
        found = os.fstat(descriptor)
    except OSError:  # it is closed
        return None
    if not stat.S_ISSOCK(found.st_mode):
        return None
    key = found.st_dev, found.st_ino
    if key not in _relays:
        reading, _relays[key] = os.pipe()
        # not the descriptor itself: its number may be another's one day
        relay = threading.Thread(
            target=_relay, args=(reading, os.dup(descriptor)), name="duly-output", daemon=True
        )
        relay.start()
    return _relays[key]


def _relay(reading: int, writing: int) -> None:
    while data := os.read(reading, _MOST_BYTES):
        with suppress(OSError):  # nobody reads any more: callbacks go on
            _write(writing, data)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
