"""The claim journal: a file that an Executor maps, from which others learn what it held when it died.

It says who wrote it, which callback processes that had, the prefixes of requests for claims that have no answer yet,
the claims that are held and their cells, and when the writer must be dead unless it renews them. The slot board, which callback
processes write, is a file of its own: the journal is never open in a callback process. It is never synced: it outlives the kill of its writer, not a power cut. A word that is
written last makes an entry valid, so a kill leaves no entry half written. Whatever it says of claims is checked again
by the store: a claim counts only with the token that the task has now. Readers believe nothing else without a check,
for code of the Executor's own user can write to the file.
"""

import json
import mmap
import os
import re
import stat
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Self, get_type_hints

from duly_core.host.slot_board import MOST_PROCESSES, MOST_SLOTS, SlotBoard
from duly_core.process.clock import since_boot_ns
from duly_core.process.identity import MOST_PID, boot_id, host_name, machine_id, pid_namespace, started
from duly_core.tasks.task import TOKEN_PREFIX_BYTES, Token
from duly_wire.ids import TaskId

_PAGE = 4096
_MAGIC, _MAGIC_BEFORE_CELLS = b"DULYCJ03", b"DULYCJ02"
"""What releases before cells wrote has no names of cells, and is read still: its writer may have died in an upgrade."""
_HEAD = struct.Struct("<8sIIHH")
"""The magic, the length of what names the owner, how many claims there is room for, and the shape of the board."""
_ALIVE = 24
"""When the owner was last alive, in nanoseconds of CLOCK_BOOTTIME."""
_PREFIXES = 32
_MOST_PREFIXES = 64
_PREFIX = struct.Struct("<14sH")
_NOTED = 1
_OWNER = _PREFIXES + _MOST_PREFIXES * _PREFIX.size
_CELLS = 2 * _PAGE
_CELL = struct.Struct("<32s")
CELL_NAME = re.compile(rb"[a-z0-9][a-z0-9_-]{0,31}")
"""As in `duly_core.cells.directory`, which hosts do not load."""
_MOST_CELLS = _PAGE // _CELL.size
_CLAIMS = 3 * _PAGE
_CLAIM = struct.Struct("<q16s16s")
_WORD = 8
_DEADLINE = _CELLS - _WORD
"""When the owner must be dead, in nanoseconds of CLOCK_BOOTTIME; 0: no claim limits its life."""
_HELD = 1
_CELL_SHIFT, _CELL_MASK = 1, 0xFF
"""Above the bit that makes a claim valid: the number of its cell, from 1; 0: it has no name."""
_BATCH_SHIFT = 9
"""Above that: the number of the batch that it is in."""
_BATCH_SHIFT_BEFORE_CELLS = 1
_TOUCH_EVERY_NS = 3600 * 10**9
_LEADER = struct.Struct("<qq")
"""A callback process: its number and when it started; number 0: there is none."""
_MOST_CLAIMS = 1_000_000
"""A journal with room for more is not read, so none is made."""
_MOST_UID = 2**32 - 2
_MEMORY = "duly-claim-journal"


@dataclass(frozen=True, slots=True)
class Owner:
    """The Executor process that writes a journal."""

    executor_id: str
    pid: int
    started: int
    """In clock ticks since boot: the pid goes to another process later."""
    boot_id: str
    pid_namespace: str
    host: str
    machine_id: str
    """Empty: unknown."""
    cgroup: str
    """The folder of the cgroup of its callback processes; empty: none."""
    callback_uid: int
    """The user that its callback processes become."""

    @classmethod
    def this_process(cls, executor_id: str, cgroup: str = "", callback_uid: int | None = None) -> Self:
        """As this process has to name itself; without `callback_uid`, callbacks run as its own user."""
        pid = os.getpid()
        return cls(
            executor_id,
            pid,
            started(pid) or 0,
            boot_id(),
            pid_namespace(),
            host_name(),
            machine_id(),
            cgroup,
            os.geteuid() if callback_uid is None else callback_uid,
        )

    def is_gone_with_its_boot(self) -> bool:
        """Whether this host was started again since: no process of before lives.

        Machines may share a name, so a machine without an id of its own proves nothing.
        """
        same = bool(self.machine_id) and (self.host, self.machine_id) == (host_name(), machine_id())
        return same and self.boot_id != boot_id()

    def can_be_proved_dead(self) -> bool:
        """Whether its process numbers mean here what they meant to it."""
        return self.boot_id == boot_id() and self.pid_namespace == pid_namespace()


@dataclass(frozen=True, slots=True)
class JournalContents:
    """What a journal says."""

    owner: Owner
    claims: dict[TaskId, Token]
    prefixes: list[bytes]
    """Of requests for claims whose answer had not come."""
    alive_boot_ns: int
    """Not later than now."""
    leaders: dict[int, int]
    """Its callback processes: when each started, in clock ticks since boot, by its number."""
    board: SlotBoard
    batches: dict[TaskId, int] = field(default_factory=dict)
    """Claims whose tasks share a call: the same number for those of one call. The board names one of these tasks."""
    cells: dict[TaskId, str] = field(default_factory=dict)
    """The names of the cells in which claims were made; others name none."""


class ClaimJournal:
    """The writer's side; only the Executor has it."""

    def __init__(
        self,
        descriptor: int,
        board_descriptor: int | None,
        owner: Owner,
        processes: int,
        slots: int,
        claims: int,
    ) -> None:
        """Lay a journal and its board out in empty files; the files are not closed by this object.

        Args:
            descriptor: the journal's file.
            board_descriptor: the slot board's file; None: memory.
            owner: this process.
            processes: of the slot board.
            slots: of the slot board, for each process.
            claims: there is room for so many, and for a million at most.

        Raises:
            OSError: a file cannot be made so large.
            ValueError: the owner's description is too long.
        """
        self.descriptor = descriptor
        self.board = SlotBoard.create(processes, slots, board_descriptor)
        claims = min(claims, _MOST_CLAIMS)
        size = _size(claims, processes)
        os.posix_fallocate(descriptor, 0, size)  # writing to a hole on a full disk would kill this process
        described = json.dumps(asdict(owner)).encode()
        if len(described) > _DEADLINE - _OWNER:
            message = "what names the owner of a claim journal is too long"
            raise ValueError(message)
        self._memory = memoryview(mmap.mmap(descriptor, size))
        self._words = self._memory.cast("q")
        self._alive = _ALIVE // _WORD
        self._leaders = _CLAIMS + claims * _CLAIM.size
        self._free = list(reversed(range(_CLAIMS, self._leaders, _CLAIM.size)))
        self._free_prefixes = list(range(_PREFIXES, _OWNER, _PREFIX.size))
        self._prefixes: dict[bytes, int] = {}
        self._cells: dict[str, int] = {"": 0}
        """The numbers of their names."""
        self._touch_at = 0
        self.alive()
        self._memory[_OWNER : _OWNER + len(described)] = described
        self._memory[: _HEAD.size] = _HEAD.pack(_MAGIC, len(described), claims, processes, slots)

    @classmethod
    def without_file(cls, owner: Owner, processes: int, slots: int, claims: int) -> Self:
        """One in memory: who opened it while this process lived can read it, others cannot find it."""
        return cls(os.memfd_create(_MEMORY), None, owner, processes, slots, claims)

    def note_process(self, number: int, pid: int) -> None:
        """Note a callback process of the board's part `number`; pid 0: it is gone, with all that it started."""
        place = (self._leaders + number * _LEADER.size) // _WORD
        self._words[place] = 0
        self._words[place + 1] = (pid and started(pid)) or 0
        self._words[place] = pid

    def alive(self) -> None:
        """Record that this process lives: what began much later does not belong to it."""
        now = self._words[self._alive] = since_boot_ns()
        if now >= self._touch_at:
            self._touch_at = now + _TOUCH_EVERY_NS
            for descriptor in (self.descriptor, self.board.descriptor):
                with suppress(OSError):
                    os.utime(
                        descriptor
                    )  # writing to memory does not: what cleans /tmp takes it for forgotten

    def note_deadline(self, boot_ns: int | None) -> None:
        """Note when this process must be dead, for who watches it; None: no claim limits its life."""
        self._words[_DEADLINE // _WORD] = boot_ns or 0

    def add(self, task_id: TaskId, token: Token, cell: str = "") -> int:
        """Note a claim that is held from now on, made in this cell; where it is noted, 0 if there is no room."""
        claim = task_id + token
        number = self._cells.get(cell)
        if number is None and (number := self._number_of(cell)) is None:
            return 0
        if not self._free or len(claim) != _CLAIM.size - _WORD:
            return 0
        place = self._free.pop()
        self._memory[place + _WORD : place + _CLAIM.size] = claim
        self._words[place // _WORD] = (
            _HELD | number << _CELL_SHIFT
        )  # last: a reader that sees it sees the whole claim
        return place

    def _number_of(self, cell: str) -> int | None:
        """Write the name of a cell, and return its number; None: there is no room for it."""
        name = cell.encode()
        number = len(self._cells)
        if number > _MOST_CELLS or len(name) > _CELL.size:
            return None
        place = _CELLS + (number - 1) * _CELL.size
        self._memory[place : place + _CELL.size] = _CELL.pack(name)
        self._cells[cell] = number
        return number

    def note_batch(self, places: Iterable[int], batch: int) -> None:
        """Note that the claims noted there share a call of this number; 0: they share none."""
        for place in places:
            if place:
                word = self._words[place // _WORD] & (1 << _BATCH_SHIFT) - 1
                self._words[place // _WORD] = word | batch << _BATCH_SHIFT

    def drop(self, place: int) -> None:
        """What was noted there is held no longer."""
        if place:
            self._words[place // _WORD] = 0
            self._free.append(place)

    def note_prefix(self, prefix: bytes) -> None:
        """Note the prefix of a request for claims; to be called before it is sent.

        Of more than 64 that nobody forgets, the oldest goes: its claims are held by then, or have been given up.
        """
        if prefix in self._prefixes or len(prefix) != TOKEN_PREFIX_BYTES:
            return
        if not self._free_prefixes:
            self.forget_prefix(next(iter(self._prefixes)))
        place = self._prefixes[prefix] = self._free_prefixes.pop()
        self._memory[place : place + _PREFIX.size] = _PREFIX.pack(prefix, _NOTED)

    def forget_prefix(self, prefix: bytes) -> None:
        """What was claimed under it is held by now, or handed back."""
        place = self._prefixes.pop(prefix, None)
        if place is not None:
            self._memory[place : place + _PREFIX.size] = bytes(_PREFIX.size)
            self._free_prefixes.append(place)


def read_deadline(descriptor: int) -> int | None:
    """Return when the writer of a journal must be dead (CLOCK_BOOTTIME, nanoseconds); None: no claim limits its life."""
    try:
        word = os.pread(descriptor, _WORD, _DEADLINE)
    except OSError:
        return None
    deadline = int.from_bytes(word, "little", signed=True) if len(word) == _WORD else 0
    return deadline if deadline > 0 else None


def read(descriptor: int, board_descriptor: int) -> JournalContents:
    """Read what a journal says; its writer must be dead, or may write on meanwhile.

    Raises:
        ValueError: it is not a journal, or its writer died before it was complete.
    """
    found = os.fstat(descriptor)
    content = os.pread(descriptor, _CLAIMS, 0) if stat.S_ISREG(found.st_mode) else b""
    if len(content) < _CELLS:
        raise ValueError(_NO_JOURNAL)
    magic, described, claims, processes, slots = _HEAD.unpack_from(content)
    knows_cells = magic == _MAGIC
    if (
        magic not in (_MAGIC, _MAGIC_BEFORE_CELLS)
        or described > _DEADLINE - _OWNER
        or claims > _MOST_CLAIMS
        or processes > MOST_PROCESSES
        or slots > MOST_SLOTS
    ):
        raise ValueError(_NO_JOURNAL)
    begin = _CLAIMS if knows_cells else _CELLS
    size = _size(claims, processes) - _CLAIMS
    rest = os.pread(descriptor, size, begin) if found.st_size >= begin + size else b""
    if len(rest) < size:
        raise ValueError(_NO_JOURNAL)
    leaders = claims * _CLAIM.size
    noted = _PREFIX.iter_unpack(content[_PREFIXES:_OWNER])
    held = [each for each in _CLAIM.iter_unpack(rest[:leaders]) if each[0] & _HELD]
    alive = int.from_bytes(content[_ALIVE : _ALIVE + _WORD], "little")
    shift = _BATCH_SHIFT if knows_cells else _BATCH_SHIFT_BEFORE_CELLS
    names = _cell_names(content) if knows_cells else {}
    return JournalContents(
        _owner(content[_OWNER : _OWNER + described]),
        {task_id: token for _, task_id, token in held},
        [prefix for prefix, valid in noted if valid == _NOTED],
        min(alive, since_boot_ns()),
        {pid: at for pid, at in _LEADER.iter_unpack(rest[leaders:]) if 1 < pid <= MOST_PID},
        SlotBoard(board_descriptor, processes, slots),
        {task_id: batch for word, task_id, _ in held if (batch := word >> shift)},
        {
            task_id: names[number]
            for word, task_id, _ in held
            if (number := word >> _CELL_SHIFT & _CELL_MASK) in names
        },
    )


def _cell_names(content: bytes) -> dict[int, str]:
    """Return the names of cells by number; what cannot be a name is left out."""
    written = (name.rstrip(b"\0") for (name,) in _CELL.iter_unpack(content[_CELLS:_CLAIMS]))
    return {number: name.decode() for number, name in enumerate(written, 1) if CELL_NAME.fullmatch(name)}


_NO_JOURNAL = "this file is not a claim journal"


def _owner(described: bytes) -> Owner:
    """Raises: ValueError: it is invalid."""
    try:
        said = json.loads(described)
    except RecursionError:
        said = None
    fields = get_type_hints(Owner)
    if not isinstance(said, dict) or {name: type(value) for name, value in said.items()} != fields:
        message = "this claim journal does not say whose it is"
        raise ValueError(message)
    owner = Owner(**said)
    words = [value for value in said.values() if isinstance(value, str)]
    numbers = (
        1 < owner.pid <= MOST_PID and 0 <= owner.started < 2**63 and 0 <= owner.callback_uid <= _MOST_UID
    )
    if not numbers or not owner.executor_id or not all(map(str.isprintable, words)):
        message = "this claim journal names an owner that cannot be"
        raise ValueError(message)
    return owner


def _size(claims: int, processes: int) -> int:
    return _CLAIMS + claims * _CLAIM.size + processes * _LEADER.size
