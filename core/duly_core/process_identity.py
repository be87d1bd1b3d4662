"""What identifies a process of this host beyond its number, which the kernel gives to others later."""

import socket
from functools import cache
from pathlib import Path

_STARTED = 19
"""The place of the start time among the fields of /proc/PID/stat that follow the name."""


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


def started(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None: there is none of this pid."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[_STARTED])
