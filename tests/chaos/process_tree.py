"""Processes of a run, found by who started them and by a mark in their environment, never by name."""

import os
import signal
from contextlib import suppress
from pathlib import Path

MARK = "DULY_CHAOS_RUN"
"""Each process that a run starts, however far removed, has this in its environment."""


def children(pid: int) -> list[int]:
    """The processes that this one started."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    """All below it, nearest first."""
    found: list[int] = []
    generation = [pid]
    while generation:
        generation = [child for parent in generation for child in children(parent)]
        found += generation
    return found


def executors(host: int) -> list[int]:
    """Executors of a host's Controller."""
    return [pid for pid in children(host) if "duly_executor" in command(pid)]


def callbacks(host: int) -> list[int]:
    """Callback processes of a host."""
    return [
        pid
        for executor in executors(host)
        for pid in children(executor)
        if "duly_executor.callback" in command(pid)
    ]


def command(pid: int) -> str:
    """Its command line; empty when it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def is_running(pid: int) -> bool:
    """Whether it is there and no zombie."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    return False


def marked(run: str) -> dict[int, str]:
    """What still runs of a run, with its command line; zombies do not run."""
    wanted = f"{MARK}={run}".encode()
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0") and is_running(int(entry.name)):
                found[int(entry.name)] = command(int(entry.name))
    return found


class Held:
    """Some processes by descriptor, so that a signal never reaches another that got the same number since."""

    def __init__(self, pids: list[int]) -> None:
        self._descriptors: dict[int, int] = {}
        for pid in pids:
            with suppress(ProcessLookupError):
                self._descriptors[pid] = os.pidfd_open(pid)

    @property
    def pids(self) -> list[int]:
        return list(self._descriptors)

    def send(self, number: signal.Signals) -> int:
        """Signal those that still live; how many."""
        sent = 0
        for descriptor in self._descriptors.values():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, number)
                sent += 1
        return sent

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()
