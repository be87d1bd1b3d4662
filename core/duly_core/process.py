"""The life of a process of ours: it ends when the process that started it does."""

import ctypes
import os
import signal
import tempfile
from pathlib import Path

PARENT_PID = "DULY_PARENT_PID"

_PR_SET_PDEATHSIG = 1


def die_with_parent(signal_number: int = signal.SIGTERM) -> None:
    """Have the kernel send us the signal when our parent, named by DULY_PARENT_PID, ends.

    Does nothing when that variable is not set: then nobody supervises us. The variable is taken out of
    the environment, for it would tell our own children a wrong parent. Call it first of all, and
    from the main thread. (The kernel means the parent's *thread*: a parent starts us from its main one.)
    """
    parent = os.environ.pop(PARENT_PID, None)
    if parent is None:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal_number))
    if os.getppid() != int(parent):  # it ended before we asked: what the kernel would have sent
        signal.raise_signal(signal_number)


def default_socket(name: str = "controller") -> str:
    """The address of a local socket that only this user can reach, for gRPC: `unix:PATH`."""
    folder = os.environ.get("XDG_RUNTIME_DIR") or str(Path(tempfile.gettempdir()) / f"duly-{os.getuid()}")
    return f"unix:{folder}/{name}.sock"
