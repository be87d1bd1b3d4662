"""The life of a process of ours: it ends when the process that started it does."""

import ctypes
import os
import signal
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from duly_core.errors import SettingsError

PARENT_PID = "DULY_PARENT_PID"

KEEPALIVE_PIPE = "DULY_KEEPALIVE_PIPE"
"""DESCRIPTOR:SECONDS of a service that outlives its parent; see keepalive_pipe.py."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_MEND = "set XDG_RUNTIME_DIR, or name a socket elsewhere (controller.listen, DULY_CONTROLLER_LISTEN)"


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


def become_subreaper() -> None:
    """Have what our descendants leave behind become our own children, not init's."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def default_socket(name: str = "controller") -> str:
    """The address of a local socket that only this user can reach, for gRPC: `unix:PATH`.

    Raises:
        SettingsError: the folder for it, in the temporary folder that all users share, is somebody else's.
    """
    return f"unix:{runtime_folder(_MEND)}/{name}.sock"


def runtime_folder(remedy: str) -> Path:
    """Where processes of this user find each other: $XDG_RUNTIME_DIR, or a folder of ours in the temporary one.

    Raises:
        SettingsError: that folder is somebody else's; says what to do (`remedy`).
    """
    named = os.environ.get("XDG_RUNTIME_DIR")
    return (
        Path(named) if named else private_folder(Path(tempfile.gettempdir()) / f"duly-{os.geteuid()}", remedy)
    )


def private_folder(folder: Path, remedy: str) -> Path:
    """Make a folder, or make sure that it is ours: anybody may have made it before us, to listen in our stead.

    Raises:
        SettingsError: it cannot be made, or is not ours alone; says what to do (`remedy`).
    """
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700, parents=True)
        found = folder.lstat()
    except OSError as error:
        raise SettingsError(f"the folder {folder} cannot be made: {error.strerror}; {remedy}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise SettingsError(
            f"{folder} must be a folder that belongs to this user and that nobody else can reach (mode 0700): "
            f"remove it, or {remedy}"
        )
    return folder
