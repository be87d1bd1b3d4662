"""A Redis of the benchmark's own: append-only file, synced every second, which is what its users run."""

import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.system import BenchmarkError, Program
from duly_local.ports import LOOPBACK, free_port

_READY_WITHIN = 20.0


def missing() -> str:
    """Why there is no Redis here; empty: there is."""
    return "" if shutil.which("redis-server") else "no redis-server on the PATH"


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Its URL, for as long as the context lasts."""
    port = free_port()
    settings = {
        "port": port,
        "bind": LOOPBACK,
        "dir": folder,
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "daemonize": "no",
    }
    command = [
        "redis-server",
        *(part for name, value in settings.items() for part in (f"--{name}", str(value))),
    ]
    program = Program(command, {}, folder / "redis.log")
    try:
        _await(port, program)
        yield f"redis://{LOOPBACK}:{port}/0"
    finally:
        program.stop()


def _await(port: int, program: Program) -> None:
    deadline = time.monotonic() + _READY_WITHIN
    while program.process.poll() is None and time.monotonic() < deadline:
        try:
            with socket.create_connection((LOOPBACK, port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                if connection.recv(16).startswith(b"+PONG"):
                    return
        except OSError:
            pass
        time.sleep(0.02)
    raise BenchmarkError("redis-server did not start: see redis.log")
