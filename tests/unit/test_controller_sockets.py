"""The socket files that killed workers left are removed, and no others."""

import os
import socket
from pathlib import Path

from duly_controller.sockets import remove_stale

NOBODY = 2**22 + 1
"""Above the largest pid that Linux gives."""


def bound(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    return server


def test_only_sockets_of_dead_workers_on_which_nobody_listens_are_removed(tmp_path: Path) -> None:
    stale, ours, other, plain = (
        tmp_path / f"worker-{NOBODY}.sock",
        tmp_path / f"worker-{os.getpid()}.sock",
        tmp_path / "controller.sock",
        tmp_path / f"worker-{NOBODY + 1}.sock",
    )
    listened_to = tmp_path / f"worker-{NOBODY + 2}.sock"
    for path in (stale, ours, other):
        bound(path).close()
    plain.touch()
    with bound(listened_to) as server:
        server.listen()

        remove_stale(tmp_path)

        assert sorted(tmp_path.iterdir()) == sorted([ours, other, plain, listened_to])
