"""The socket files of workers: one each, by its pid; what a killed one left is removed by the next that starts."""

import os
import re
import socket
from contextlib import suppress
from pathlib import Path

from duly_core.process import default_socket

_NAME = re.compile(r"worker-(\d+)\.sock")


def own_socket() -> str:
    """The address for this worker's Executors."""
    address = default_socket(f"worker-{os.getpid()}")
    remove_stale(Path(address.removeprefix("unix:")).parent)
    return address


def remove_stale(folder: Path) -> None:
    """Remove the sockets of workers that are gone: no such process lives, and nobody listens."""
    with suppress(OSError):
        for path in folder.iterdir():
            named = _NAME.fullmatch(path.name)
            if named and path.is_socket() and not _lives(int(named[1])) and not _listens(path):
                path.unlink(missing_ok=True)


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _listens(path: Path) -> bool:
    """Asked too, for the folder may be shared with a container, where pids mean something else."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1)
        try:
            client.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True  # perhaps: it is too busy, or not ours
        return True
