"""The folder of a host's claim journals: whose writer lives is told by a lock that dies with it.

The lock (flock) is on the journal's descriptor, which no other process inherits. Who holds it may read the journal and
remove it. Beside each journal lies the slot board of its Executor, made after it and removed before it.
"""

import fcntl
import hashlib
import os
import re
import stat
from contextlib import ExitStack
from pathlib import Path

import structlog

from duly_core.host.claim_journal import ClaimJournal, JournalContents, Owner, read
from duly_core.process.parent import private_folder, runtime_folder

log = structlog.get_logger()

_MEND = "name another one (executor.journal_folder, DULY_EXECUTOR_JOURNAL_FOLDER)"
_SUFFIX = ".claims"
_BOARD_SUFFIX = ".board"
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
"""A pipe of that name would have to wait for its writer."""
_UNUSABLE = re.compile(r"[^A-Za-z0-9.-]")


class TakenJournal:
    """A journal whose writer is dead, and whose lock we hold."""

    def __init__(
        self, path: Path | None, descriptor: int, board_descriptor: int, left: JournalContents | None
    ) -> None:
        """Args: `path` is None for one in memory; `left` is None when the journal cannot be read."""
        self.left = left
        self._path = path
        self._descriptors = [descriptor, board_descriptor]

    def remove(self) -> None:
        """All it says is dealt with."""
        if self._path is not None:
            _remove(self._path)
        self.leave()

    @classmethod
    def in_memory(cls, descriptor: int, board_descriptor: int) -> "TakenJournal":
        """The journal of a dead Executor that could make no file, by descriptors that were opened while it lived."""
        return cls(None, descriptor, board_descriptor, _read(descriptor, board_descriptor))

    def leave(self) -> None:
        """Let others have it."""
        for descriptor in self._descriptors:
            if descriptor >= 0:
                os.close(descriptor)  # and with it goes the lock
        self._descriptors = []


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
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with ExitStack() as undo:  # only what this call has made is removed
            try:
                journal = os.open(path, flags, 0o600)
                undo.callback(os.close, journal)
                undo.callback(path.unlink, missing_ok=True)
                fcntl.flock(journal, fcntl.LOCK_EX)
                board = os.open(_board_of(path), flags, 0o600)
                undo.callback(os.close, board)
                undo.callback(_board_of(path).unlink, missing_ok=True)
                made = ClaimJournal(journal, board, owner, processes, slots, claims)
            except (OSError, ValueError) as error:
                reason = str(error)
            else:
                undo.pop_all()
                return made
        log.warning("claim journal kept in memory only", path=str(path), reason=reason)
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
            descriptor = os.open(path, _READ)
        except OSError:
            return None
        try:
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_nlink:
                    board = _open_board(path)
                    return TakenJournal(path, descriptor, board, _read(descriptor, board))
        except OSError:
            pass
        os.close(descriptor)  # another had it, and has removed it by now, or has it still
        return None


def _board_of(journal: Path) -> Path:
    return journal.with_name(journal.name.removesuffix(_SUFFIX) + _BOARD_SUFFIX)


def _open_board(journal: Path) -> int:
    """The board's descriptor; -1: there is none."""
    try:
        descriptor = os.open(_board_of(journal), _READ)
    except OSError:
        return -1
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return -1


def _remove(journal: Path) -> None:
    """Remove a journal and its board: the board first, so that none lies there without a journal."""
    _board_of(journal).unlink(missing_ok=True)
    journal.unlink(missing_ok=True)


def _read(descriptor: int, board_descriptor: int) -> JournalContents | None:
    try:
        return read(descriptor, board_descriptor) if board_descriptor >= 0 else None
    except ValueError:
        return None
