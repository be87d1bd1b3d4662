"""Ports of a run, which nobody else takes while its server is down.

They are outside the range that the kernel gives to outgoing connections, and outside that of duly_local.ports.
"""

import os
from collections.abc import Iterator

from duly_local.ports import is_free

_FIRST = 22_000
_BLOCK = 64
_BLOCKS = 160


def free_ports() -> Iterator[int]:
    """One after the other, from a block that runs side by side (which have process ids close to each other) do not share."""
    start = os.getpid() % _BLOCKS * _BLOCK
    for offset in range(_BLOCKS * _BLOCK):
        port = _FIRST + (start + offset) % (_BLOCKS * _BLOCK)
        if is_free(port):
            yield port
