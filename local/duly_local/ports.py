"""TCP ports on the loopback address."""

import os
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from pathlib import Path

from duly_core.errors import PortInUseError

LOOPBACK = "127.0.0.1"
_LOOK_AGAIN_AFTER = timedelta(milliseconds=100)
_FIRST_TO_LAST = range(10_240, 22_000)
_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FEW = 1_000
_places = count(os.getpid() * 64)
"""Where to look next: not where another process begins that looks at this time, and where this one has not just been."""


def free_port() -> int:
    """A port that nothing listens on now. Another process may take it first: be ready to ask again."""
    return free_ports(1)[0]


def free_ports(number: int) -> list[int]:
    """So many of them, all different, and none that the kernel gives to connections that go out.

    Such a connection, of ours or of any other process, would else take the port while its server is being started.

    Raises:
        PortInUseError: there are not so many.
    """
    outgoing = _outgoing()
    candidates = [port for port in _FIRST_TO_LAST if port not in outgoing]
    if len(candidates) < _FEW:  # nearly everything may go out: then no port is better than another
        candidates = list(_FIRST_TO_LAST)
    found: list[int] = []
    for _ in candidates:
        port = candidates[next(_places) % len(candidates)]
        if is_free(port):
            found.append(port)
            if len(found) == number:
                return found
    raise PortInUseError(
        f"of the ports {_FIRST_TO_LAST.start} to {_FIRST_TO_LAST.stop - 1} only {len(found)} are free (those in "
        f"{_OUTGOING} aside), and {number} are needed"
    )


def _outgoing() -> range:
    try:
        first, last = map(int, _OUTGOING.read_text(encoding="utf-8").split())
    except (OSError, ValueError):
        return range(0)
    return range(first, last + 1)


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket() as listener:
        # As servers do, so that connections of an earlier run in TIME_WAIT are no obstacle.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
            listener.listen()
        except OSError:
            return False
        return True


def require_free(port: int, owner: str, way_out: str = "choose another") -> None:
    """Refuse to go on when the port is taken.

    Raises:
        PortInUseError: names the port and who wanted it.
    """
    if not is_free(port):
        raise PortInUseError(
            f"port {port}, which {owner} was told to use, is in use: stop what listens there, or {way_out}"
        )


def await_free(
    port: int,
    owner: str,
    within: timedelta,
    tell: Callable[[str], None],
    way_out: str = "choose another",
) -> None:
    """Wait for whoever listens on the port to go: a worker of an earlier run that was killed drains first.

    Raises:
        PortInUseError: it did not go in time; names the port and who wanted it.
    """
    if is_free(port):
        return
    tell(
        f"port {port}, for {owner}, is in use: waiting up to {within.total_seconds():g} s, "
        "for an earlier run may be draining"
    )
    deadline = time.monotonic() + within.total_seconds()
    while time.monotonic() < deadline:
        if is_free(port):
            return
        time.sleep(_LOOK_AGAIN_AFTER.total_seconds())
    require_free(port, owner, way_out)
