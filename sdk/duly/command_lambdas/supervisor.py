"""Starts one command, watches it, and leaves nothing of it behind. A program of its own: it imports nothing of Duly.

    python -I -S supervisor.py ORDERS_FD REPORTS_FD

The orders begin with what to run, as JSON after its length. Each later byte is an order: T ends the command with SIGTERM, K with SIGKILL. When
the orders end, their writer is dead, and the command is killed. Reports are lines of JSON. The command has this program's stdin, stdout and
stderr, and neither of the two descriptors.

Where the command has a control group, the kernel holds its limits of memory and processes, and this program tells when it did. Elsewhere this
program counts them. All that the command starts stays below this program, because it is their subreaper: so it can count them, and kill those that
left their parents.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

LENGTH_BYTES = 8
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_LOOK_S = 0.05
_SHORT_REST = 20
"""The folder is measured again after so many times as long as that took."""
_MEASURE_S = 0.5
_AFTER_KILL_S = 0.005
_DEAD_WITHIN_S = 10.0
_REFUSALS = {"memory": ("memory.events", b"oom"), "processes": ("pids.events", b"max")}
"""Limits, the file of a control group that counts what was refused for each, and the name in it."""
_BLOCK = 512
_CORE_BYTES = 0
_OPEN_FILES = 4096
_MOST_LOOKED_AT = 100_000
"""Entries of the folder: files without content take room, too."""
_NOT_STARTED = 127


def main() -> None:
    """Run the command to its end, and report it."""
    orders_fd, reports_fd = map(int, sys.argv[1:])
    for descriptor in (orders_fd, reports_fd):
        os.set_inheritable(descriptor, False)
    libc = ctypes.CDLL(None, use_errno=True)
    for option in (_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS):
        if libc.prctl(option, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), f"prctl({option})")
    # a worker that is told to end tells its commands itself; Ctrl-C goes to all of a terminal
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    told = _read(orders_fd, int.from_bytes(_read(orders_fd, LENGTH_BYTES), "big"))
    if told:
        _Watch(json.loads(told), orders_fd, reports_fd, wake).run()


def _read(descriptor: int, size: int) -> bytes:
    """Return so many bytes; none: their writer is dead."""
    data = b""
    while len(data) < size:
        more = os.read(descriptor, size - len(data))
        if not more:
            return b""
        data += more
    return data


class _Watch:
    """One command and all that it starts."""

    def __init__(self, told: dict[str, Any], orders: int, reports: int, wake: int) -> None:
        self._told = told
        self._orders = orders
        self._reports = reports
        self._wake = wake
        self._command = 0
        self._status: int | None = None
        """How the command ended; None: it has not."""
        self._limit = ""
        """For which it was killed."""
        self._group: dict[str, int] | None = told["group"]
        """Descriptors of the files of its control group, by name."""
        for descriptor in (self._group or {}).values():
            os.set_inheritable(descriptor, False)
        self._refused_before = self._refusals()
        self._looked_at = 0.0
        self._measured_at = 0.0
        self._measure_rest = _MEASURE_S

    def run(self) -> None:
        """Run the command to its end, and report it."""
        began = time.monotonic()
        problem = self._start()
        if problem:
            self._report(not_started=problem)
            return
        while not self._has_ended():
            self._wait()
            if not self._has_ended() and (limit := self._over_limit()):
                self._limit = self._limit or limit
                self._kill_all()
        seconds = time.monotonic() - began
        self._kill_all()
        self._limit = self._limit or self._refused()
        if not self._limit and self._is_folder_full():
            self._limit = "folder"
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        self._report(
            ended=self._status,
            limit=self._limit,
            seconds=round(seconds, 3),
            cpu_seconds=round(used.ru_utime + used.ru_stime, 3),
        )

    def _has_ended(self) -> bool:
        return self._status is not None

    def _start(self) -> int:
        """Start the command; return the errno of why it cannot be, or 0."""
        problem, problem_in = os.pipe()
        is_told, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(tell)
                os.read(is_told, 1)
                self._become_command()
            except OSError as error:
                os.write(problem_in, str(error.errno or 1).encode())
            finally:
                os._exit(_NOT_STARTED)
        self._report(started=pid)  # before it can do anything, such as end this program
        for descriptor in (problem_in, is_told, tell):
            os.close(descriptor)
        text = os.read(problem, 32)
        os.close(problem)
        self._command = pid
        if text:
            os.waitpid(pid, 0)
            return int(text)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):  # else the ends of the pipes would not be seen while this program lives
            os.dup2(null, descriptor)
        os.close(null)
        return 0

    def _become_command(self) -> None:
        told = self._told
        if self._group is not None:
            os.write(self._group["cgroup.procs"], b"0")
        os.setsid()  # no terminal, and no way into the group of another process
        os.chdir(told["work"])
        os.umask(0o077)
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            with suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        _limit(resource.RLIMIT_CORE, _CORE_BYTES)
        _limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
        _limit(resource.RLIMIT_FSIZE, told["folder_limit"])
        if told["memory_limit"]:
            _limit(resource.RLIMIT_DATA, 2 * told["memory_limit"])
        with suppress(OSError):  # rather this than the worker, if the machine has no memory left
            Path("/proc/self/oom_score_adj").write_text("500", encoding="ascii")
        os.execve(told["program"], told["argv"], told["environment"])  # noqa: S606 (no shell, unless it is the program)

    def _wait(self) -> None:
        """Wait for a moment, an order, or an end."""
        ready, _, _ = select.select([self._orders, self._wake], [], [], _LOOK_S)
        if self._wake in ready:
            os.read(self._wake, 4096)
        if self._orders in ready:
            self._obey(os.read(self._orders, 64))
        self._bury()

    def _obey(self, orders: bytes) -> None:
        if not orders:
            self._kill_all()
            os._exit(0)
        if b"K" in orders:
            self._kill_all()
        elif b"T" in orders:
            _signal_group(self._command, signal.SIGTERM)

    def _bury(self) -> None:
        """Reap what has ended."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._command:
                    self._status = os.waitstatus_to_exitcode(ended[1])

    def _kill_all(self) -> None:
        """Kill all below this program, and return when nothing is left, or what is left hangs in the kernel."""
        end = time.monotonic() + _DEAD_WITHIN_S
        if self._group is not None:
            os.write(self._group["cgroup.kill"], b"1")
        if not self._has_ended():  # its group at one word: none of it can start more in between
            _signal_group(self._command, signal.SIGKILL)
        stop_all()
        while (left := living()) and time.monotonic() < end:
            for pid in left:
                _signal(pid, signal.SIGKILL)
            self._bury()
            time.sleep(_AFTER_KILL_S)
        self._bury()

    def _over_limit(self) -> str:
        now = time.monotonic()
        if now < self._looked_at + _LOOK_S:
            return ""
        self._looked_at = now
        if limit := self._refused() if self._group is not None else self._beyond():
            return limit
        if now >= self._measured_at + self._measure_rest and self._is_folder_full():
            return "folder"
        return ""

    def _beyond(self) -> str:
        """Return the limit that all processes together are beyond."""
        found = living()
        limit = self._told["process_limit"]
        if limit and sum(found.values()) > limit:
            return "processes"
        limit = self._told["memory_limit"]
        return "memory" if limit and memory_of(found) > limit else ""

    def _refused(self) -> str:
        """Return the limit for which the kernel refused the control group something."""
        return next(
            (limit for limit, times in self._refusals().items() if times > self._refused_before[limit]), ""
        )

    def _refusals(self) -> dict[str, int]:
        """Return how often that was, since the group was made: it had other commands before."""
        if self._group is None:
            return {}
        return {limit: _count(self._group[file], name) for limit, (file, name) in _REFUSALS.items()}

    def _is_folder_full(self) -> bool:
        began = time.monotonic()
        limit = self._told["folder_limit"]
        is_full: bool = _bytes_in(self._told["folder"], limit) > limit
        self._measured_at = time.monotonic()
        self._measure_rest = max(_MEASURE_S, _SHORT_REST * (self._measured_at - began))
        return is_full

    def _report(self, **said: Any) -> None:
        with suppress(OSError):  # nobody reads any more
            os.write(self._reports, json.dumps(said).encode() + b"\n")


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def _signal_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def living() -> dict[int, int]:
    """Return the processes below this one, each with its number of threads."""
    found: dict[int, int] = {}
    unread = [os.getpid()]
    while unread:
        pid = unread.pop()
        with suppress(OSError):  # it ended
            threads = [*Path(f"/proc/{pid}/task").iterdir()]
            if pid in found:
                found[pid] = len(threads)
            for thread in threads:
                with suppress(OSError):
                    children = map(int, (thread / "children").read_bytes().split())
                    new = [child for child in children if child not in found]
                    found |= dict.fromkeys(new, 1)
                    unread += new
    return found


def stop_all() -> None:
    """Stop all below this process, until a look at what is stopped finds nothing more: so none of them starts more."""
    stopped: set[int] = set()
    while new := living().keys() - stopped:
        for pid in new:
            with suppress(ProcessLookupError):
                if (
                    os.getpgid(pid) == pid
                ):  # with all of its group, which may grow faster than it is looked at
                    _signal_group(pid, signal.SIGSTOP)
            _signal(pid, signal.SIGSTOP)
        stopped |= new


def memory_of(pids: Iterable[int]) -> int:
    """Return the bytes of processes that belong to no file on a disk: the heap of each, and shared memory.

    Shared memory counts as much as one process has of it, the one that has most: others may have the same.
    """
    own = shared = 0
    for pid in pids:
        with suppress(OSError, ValueError, KeyError):
            lines = Path(f"/proc/{pid}/status").read_bytes().split(b"\n")
            values = {name: value for name, _, value in (line.partition(b":") for line in lines)}
            own += _kilobytes(values[b"RssAnon"])
            shared = max(shared, _kilobytes(values[b"RssShmem"]))
    return own + shared


def _kilobytes(value: bytes) -> int:
    return int(value.split()[0]) * 1024


def _count(descriptor: int, name: bytes) -> int:
    """Return a number of a file that has a name and a number in each line."""
    lines = os.pread(descriptor, 4096, 0).split(b"\n")
    return sum(int(line.split()[1]) for line in lines if line.startswith(name + b" "))


def _bytes_in(folder: str, enough: int) -> int:
    """Return what the files in a folder take; stop counting when it is more than enough."""
    total = entries = 0
    for _, folders, files, descriptor in os.fwalk(folder, follow_symlinks=False):
        for name in (*folders, *files):
            with suppress(OSError):
                total += os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_blocks * _BLOCK
            entries += 1
            if total > enough or entries > _MOST_LOOKED_AT:
                return enough + 1
    return total


if __name__ == "__main__":
    main()
