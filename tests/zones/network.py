"""The network of the zones: a namespace for each, and a router between them that delays, loses and cuts on demand.

All that goes from one zone to another is IP packets through the router (TUN devices), so the TCP of the real kernel meets what a real
network does: loss is repeated, a cut in one direction is silence in both. Netem is not needed.

    10.97.ZONE.1   the address of a zone: what the rules are about
    10.98.ZONE.1   the same zone by the back door, which no rule closes: for the runner's own eyes
"""

import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tests.fixtures.namespaces import FOLDER, Inside
from tests.zones.router import CUT, Way, route

ZONES = ("a", "b", "c")
OUTSIDE = "outside"
"""Where the client is."""
QUEUE = "queue"
"""Where SQS is, in the runs that have it."""
PLACES = (*ZONES, OUTSIDE, QUEUE)
DEVICE = "zone0"

_NUMBERS = {place: number for number, place in enumerate(PLACES, 1)}
_PREFIX = "duly-zones-"
_TUN, _NO_HEADER, _SET_DEVICE = 1, 0x1000, 0x400454CA
_MTU = "9000"


class Network:
    """Make one before the process has threads: it forks the router."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._name = f"{_PREFIX}{os.getpid()}"
        self._router = 0
        self._control: socket.socket | None = None

    def namespace(self, place: str) -> str:
        """The name of a place's network namespace, as `ip netns` shows it."""
        return f"{self._name}-{place}"

    @staticmethod
    def address(place: str) -> str:
        """Where others find a place."""
        return f"10.97.{_NUMBERS[place]}.1"

    @staticmethod
    def back_door(place: str) -> str:
        """Where the runner finds it, whatever is done to the network."""
        return f"10.98.{_NUMBERS[place]}.1"

    def start(self) -> None:
        """Make the namespaces, and begin to route."""
        remove_leftovers()
        tuns = {self._make(place): _NUMBERS[place] for place in PLACES}
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._router = os.fork()
        if not self._router:
            try:
                self._control.close()
                route(tuns, theirs, self._seed)
            finally:
                os._exit(0)
        theirs.close()
        for tun in tuns:
            os.close(tun)

    def _make(self, place: str) -> int:
        """A namespace with its addresses; the other end of its device."""
        name, number = self.namespace(place), _NUMBERS[place]
        _ip("netns", "add", name)
        with Inside(name):
            tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.ioctl(tun, _SET_DEVICE, struct.pack("16sH22x", DEVICE.encode(), _TUN | _NO_HEADER))
        inside = ("-n", name)
        _ip(*inside, "link", "set", "lo", "up")
        _ip(*inside, "link", "set", DEVICE, "mtu", _MTU, "up")
        for network in (97, 98):
            address = f"10.{network}.{number}.1"
            _ip(*inside, "address", "add", f"{address}/32", "dev", DEVICE)
            _ip(*inside, "route", "add", f"10.{network}.0.0/16", "dev", DEVICE, "src", address)
        return tun

    def set(self, source: str, target: str, way: Way | None) -> None:
        """Set what happens to packets from source to target; None: all arrive."""
        assert self._control is not None
        rule = [_NUMBERS[source], _NUMBERS[target], *(way or ())]
        self._control.send(json.dumps(rule).encode())

    def set_all(self, pairs: Iterable[tuple[str, str]], way: Way | None) -> None:
        """The same for many pairs."""
        for source, target in pairs:
            self.set(source, target, way)

    def cut(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Lose everything of these directions, and tell nobody."""
        self.set_all(pairs, CUT)

    def heal(self) -> None:
        """Be a good network again, everywhere."""
        self.set_all(((source, target) for source in PLACES for target in PLACES if source != target), None)

    def pids(self, place: str) -> list[int]:
        """All processes of a place."""
        return _pids(self.namespace(place))

    def stop(self) -> None:
        """End the router, whatever runs in the zones, and the namespaces."""
        if self._control is not None:
            self._control.close()
        if self._router:
            os.waitpid(self._router, 0)
        for place in PLACES:
            _remove(self.namespace(place))


def both_ways(one: str, others: Iterable[str] = PLACES) -> list[tuple[str, str]]:
    """From a place to others and back."""
    return [pair for other in others if other != one for pair in ((one, other), (other, one))]


def outwards(one: str, others: Iterable[str] = PLACES) -> list[tuple[str, str]]:
    """From a place to others."""
    return [(one, other) for other in others if other != one]


def inwards(one: str, others: Iterable[str] = PLACES) -> list[tuple[str, str]]:
    """From others to a place."""
    return [(other, one) for other in others if other != one]


def remove_leftovers() -> None:
    """Namespaces of runs that were killed, with what runs in them."""
    names = os.listdir(FOLDER) if FOLDER.is_dir() else []  # noqa: PTH208 (names)
    for name in names:
        maker = name.removeprefix(_PREFIX).partition("-")[0]
        if name.startswith(_PREFIX) and maker.isdigit() and not Path(f"/proc/{maker}").exists():
            _remove(name)


def _remove(name: str) -> None:
    if not (FOLDER / name).exists():
        return
    until = time.monotonic() + 5
    while (left := _pids(name, but_us=True)) and time.monotonic() < until:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    _ip("netns", "delete", name)


def _pids(name: str, *, but_us: bool = True) -> list[int]:
    """By what the kernel says of each process: `ip netns pids` would be a process each time."""
    inode = (FOLDER / name).stat().st_ino
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and not (but_us and int(entry.name) == os.getpid()):
            with suppress(OSError):
                if (entry / "ns/net").stat().st_ino == inode:
                    found.append(int(entry.name))
    return found


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=10)
