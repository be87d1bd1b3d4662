"""The folder of a host's claim journals: whose writer lives is told by a lock that dies with it.

The lock (flock) is on a descriptor that no other process inherits. Who holds it may read the journal and remove it.
"""

import fcntl
import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path

import structlog

from duly_core.claim_journal import ClaimJournal, JournalContents, Owner, read
from duly_core.process import private_folder, runtime_folder

log = structlog.get_logger()

_MEND = "name another one (executor.journal_folder, DULY_EXECUTOR_JOURNAL_FOLDER)"
_SUFFIX = ".claims"
_UNUSABLE = re.compile(r"[^A-Za-z0-9.-]")


class TakenJournal:
    """A journal whose writer is dead, and whose lock we hold."""

    def __init__(self, path: Path | None, descriptor: int, left: JournalContents | None) -> None:
        """Args: `path` is None for one in memory; `left` is None when the journal cannot be read."""
        self.left = left
        self._path = path
        self._descriptor = descriptor

    def remove(self) -> None:
        """All it says is dealt with."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        self.leave()

    @classmethod
    def in_memory(cls, descriptor: int) -> "TakenJournal":
        """The journal of a dead Executor that could make no file, by a descriptor that was opened while it lived."""
        return cls(None, descriptor, _read(descriptor))

    def leave(self) -> None:
        """Let others have it."""
        if self.left is not None:
            self.left.board.close()
        os.close(self._descriptor)  # and with it goes the lock


class JournalFolder:
    """Makes journals, and takes those whose writers are dead."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls, configured: str, hsc_address: str) -> "JournalFolder":
        """The folder of the settings; if they name none, one for this user and the installation with this HSC.

        Raises:
            SettingsError: it cannot be made, or others can reach it.
        """
        if configured:
            return cls(private_folder(Path(configured).absolute(), _MEND))
        installation = hashlib.sha256(hsc_address.encode()).hexdigest()[:12]
        return cls(private_folder(runtime_folder(_MEND) / f"duly-journals-{installation}", _MEND))

    @staticmethod
    def name_of(executor_id: str) -> str:
        """The name of an Executor's journal."""
        return _UNUSABLE.sub("_", executor_id) + _SUFFIX

    def create(self, owner: Owner, processes: int, slots: int, claims: int) -> ClaimJournal:
        """Make this process's journal, and hold its lock to the end of the process.

        Where that is impossible (no space, no such folder any more), it is made in memory: the Controller to which the
        Executor is attached can read it, but when both die, what was held waits for the end of its leases.
        """
        path = self.path / self.name_of(owner.executor_id)
        try:
            # A lock belongs to an opened file: callback processes inherit the one that is opened second.
            fcntl.flock(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), fcntl.LOCK_EX)
            return ClaimJournal(os.open(path, os.O_RDWR), owner, processes, slots, claims)
        except (OSError, ValueError) as error:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            log.warning(
                "claim journal kept in memory only",
                path=str(path),
                reason=str(error),
            )
            return ClaimJournal.without_file(owner, processes, slots, claims)

    def names(self) -> list[str]:
        """The journals that are there."""
        try:
            return [name for name in os.listdir(self.path) if name.endswith(_SUFFIX)]  # noqa: PTH208 (every second)
        except OSError:
            return []

    def take(self, name: str) -> TakenJournal | None:
        """A journal whose writer is dead; None: it lives, or another has taken the journal."""
        path = self.path / name
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_nlink:
                return TakenJournal(path, descriptor, _read(descriptor))
        except OSError:
            pass
        os.close(descriptor)  # another had it, and has removed it by now, or has it still
        return None


def _read(descriptor: int) -> JournalContents | None:
    try:
        return read(descriptor)
    except ValueError:
        return None
