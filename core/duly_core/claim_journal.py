"""The claim journal: a file that an Executor maps, from which others learn what it held when it died.

It begins with the slot board, which its callback processes write. Behind it stand who wrote it, the prefixes of
requests for claims that have no answer yet, and the claims that are held. It is never synced: it outlives the kill of
its writer, not a power cut. A word that is written last makes an entry valid, so a kill leaves no entry half written.
Whatever it says is checked again by the store: a claim counts only with the token that the task has now.
"""

import json
import mmap
import os
import struct
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Self, get_type_hints

from duly_core.clock import since_boot_ns
from duly_core.process_identity import boot_id, host_name, machine_id, pid_namespace, started
from duly_core.slot_board import SlotBoard
from duly_core.task import TOKEN_PREFIX_BYTES, TaskId, Token

_PAGE = 4096
_MAGIC = b"DULYCJ01"
_HEAD = struct.Struct("<8sII")
"""The magic, the length of what names the owner, and how many claims there is room for."""
_ALIVE = 16
"""When the owner was last alive, in nanoseconds of CLOCK_BOOTTIME."""
_PREFIXES = 32
_MOST_PREFIXES = 64
_PREFIX = struct.Struct("<14sH")
_NOTED = 1
_OWNER = _PREFIXES + _MOST_PREFIXES * _PREFIX.size
_CLAIMS = 2 * _PAGE
_CLAIM = struct.Struct("<q16s16s")
_WORD = 8
_HELD = 1
_TOUCH_EVERY_NS = 3600 * 10**9
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

    @classmethod
    def this_process(cls, executor_id: str, cgroup: str = "") -> Self:
        """As this process has to name itself."""
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
    board: SlotBoard


class ClaimJournal:
    """The writer's side; only the Executor has it."""

    def __init__(self, descriptor: int, owner: Owner, processes: int, slots: int, claims: int) -> None:
        """Lay a journal out in an empty file; the file is not closed by this object.

        Args:
            descriptor: the file.
            owner: this process.
            processes: of the slot board.
            slots: of the slot board, for each process.
            claims: there is room for so many.

        Raises:
            OSError: the file cannot be made so large.
            ValueError: the owner's description is too long.
        """
        self.board = SlotBoard.create(processes, slots, descriptor)
        start = _start(self.board)
        size = start + _CLAIMS + claims * _CLAIM.size
        os.posix_fallocate(descriptor, 0, size)  # writing to a hole on a full disk would kill this process
        described = json.dumps(asdict(owner)).encode()
        if len(described) > _CLAIMS - _OWNER:
            message = "what names the owner of a claim journal is too long"
            raise ValueError(message)
        self._memory = memoryview(mmap.mmap(descriptor, size))
        self._words = self._memory[: size - size % _WORD].cast("q")
        self._alive = (start + _ALIVE) // _WORD
        places = range(start + _CLAIMS, size, _CLAIM.size)
        self._free = list(reversed(places))
        first = start + _PREFIXES
        self._free_prefixes = list(range(first, first + _MOST_PREFIXES * _PREFIX.size, _PREFIX.size))
        self._prefixes: dict[bytes, int] = {}
        self._touch_at = 0
        self.alive()
        self._memory[start + _OWNER : start + _OWNER + len(described)] = described
        self._memory[start : start + _HEAD.size] = _HEAD.pack(_MAGIC, len(described), claims)

    @classmethod
    def without_file(cls, owner: Owner, processes: int, slots: int, claims: int) -> Self:
        """One in memory: who opened it while this process lived can read it, others cannot find it."""
        return cls(os.memfd_create(_MEMORY), owner, processes, slots, claims)

    def alive(self) -> None:
        """Record that this process lives: what began much later does not belong to it."""
        now = self._words[self._alive] = since_boot_ns()
        if now >= self._touch_at:
            self._touch_at = now + _TOUCH_EVERY_NS
            with suppress(OSError):
                os.utime(
                    self.board.descriptor
                )  # writing to memory does not: what cleans /tmp takes it for forgotten

    def add(self, task_id: TaskId, token: Token) -> int:
        """Note a claim that is held from now on; where it is noted, 0 if there is no room."""
        claim = task_id + token
        if not self._free or len(claim) != _CLAIM.size - _WORD:
            return 0
        place = self._free.pop()
        self._memory[place + _WORD : place + _CLAIM.size] = claim
        self._words[place // _WORD] = _HELD  # last: whoever sees it sees the whole claim
        return place

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


def read(descriptor: int) -> JournalContents:
    """Read what a journal says; its writer must be dead, or may write on meanwhile.

    Raises:
        ValueError: it is not a journal, or its writer died before it was complete.
    """
    board = SlotBoard(descriptor)
    start = _start(board)
    content = os.pread(descriptor, max(0, os.fstat(descriptor).st_size - start), start)
    if len(content) < _CLAIMS:
        message = "this file is not a claim journal"
        raise ValueError(message)
    magic, described, claims = _HEAD.unpack_from(content)
    end = _CLAIMS + claims * _CLAIM.size
    if magic != _MAGIC or len(content) < end:
        message = "this file is not a claim journal"
        raise ValueError(message)
    noted = _PREFIX.iter_unpack(content[_PREFIXES:_OWNER])
    held = _CLAIM.iter_unpack(content[_CLAIMS:end])
    return JournalContents(
        _owner(content[_OWNER : _OWNER + described]),
        {task_id: token for valid, task_id, token in held if valid == _HELD},
        [prefix for prefix, valid in noted if valid == _NOTED],
        int.from_bytes(content[_ALIVE : _ALIVE + _WORD], "little"),
        board,
    )


def _owner(described: bytes) -> Owner:
    """Raises: ValueError: it is invalid."""
    said = json.loads(described)
    fields = get_type_hints(Owner)
    if not isinstance(said, dict) or {name: type(value) for name, value in said.items()} != fields:
        message = "this claim journal does not say whose it is"
        raise ValueError(message)
    return Owner(**said)


def _start(board: SlotBoard) -> int:
    """Where the journal begins: on the page after the board."""
    return -(-board.size // _PAGE) * _PAGE
