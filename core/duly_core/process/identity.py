"""What the kernel says of a process: what identifies it beyond its number, and whether it lives."""

import socket
from functools import cache
from pathlib import Path

STARTED = 19
"""The place of the start time among the fields of /proc/PID/stat that follow the name."""
_THREADS = 17
"""The place of the number of threads."""

MOST_PID = 2**31 - 1
"""What a pid_t holds."""


@cache
def boot_id() -> str:
    """Unlike that of any other boot of any machine; containers have their host's."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


@cache
def pid_namespace() -> str:
    """The namespace in which process numbers mean what they mean to this process."""
    return str(Path("/proc/self/ns/pid").stat().st_ino)


@cache
def host_name() -> str:
    """As the kernel has it."""
    return socket.gethostname()


@cache
def machine_id() -> str:
    """The machine's own id, whatever its name; empty: it has none that can be read, as in many containers."""
    try:
        return Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def status(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat that follow the name; None: there is no process of this pid."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()  # the name may hold anything, closing brackets too


def started(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None: there is no process of this pid."""
    fields = status(pid)
    return int(fields[STARTED]) if fields else None


def has_ended(fields: list[str]) -> bool:
    """Whether the process of this `status` has ended; one that its parent has yet to bury has.

    A process whose first thread has ended looks like a dead one, though its other threads run on.
    """
    return fields[0] in "ZXx" and int(fields[_THREADS]) <= 1


def lives(pid: int) -> bool:
    """Whether a process has not ended."""
    fields = status(pid)
    return fields is not None and not has_ended(fields)


def is_stopped(pid: int) -> bool:
    """Whether a process stands still: stopped by a signal or a debugger."""
    fields = status(pid)
    return fields is not None and fields[0] in "Tt"


def user_ids(pid: int) -> frozenset[int] | None:
    """Return the real, effective, saved and file system user of a process; None: there is no process of this pid, or nobody says."""
    try:
        said = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return None
    # The name stands above. The process chooses it, and the kernel escapes of all ends of lines only the line feed.
    users = next((line for line in said.split(b"\n") if line.startswith(b"Uid:")), b"")
    return frozenset(map(int, users.split()[1:])) or None
