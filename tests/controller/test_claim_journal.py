"""The claim journal: what its writer noted is read after the writer's kill, and nothing that it did not note."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from duly_core.cells import directory
from duly_core.errors import SettingsError
from duly_core.host import claim_journal
from duly_core.host.claim_journal import ClaimJournal, Owner, read, read_deadline
from duly_core.host.journal_folder import JournalFolder, TakenJournal
from duly_core.host.slot_board import RunningTask, SlotWriter
from duly_core.process.clock import since_boot_ns
from duly_core.process.identity import started
from duly_core.tasks.claim_tokens import Tokens, new_prefix
from duly_core.tasks.task import TOKEN_PREFIX_BYTES
from tests.fixtures.programs import Programs

TASK, OTHER = b"t" * 16, b"o" * 16
TOKEN, NEWER = b"k" * 16, b"n" * 16
OWNER = Owner.this_process("host:1:abc", "/sys/fs/cgroup/duly-1-2-3")
HOLD = """
import os, sys
from pathlib import Path
from duly_core.host.claim_journal import Owner
from duly_core.host.journal_folder import JournalFolder
journal = JournalFolder(Path(sys.argv[1])).create(Owner.this_process("host:1:abc"), 1, 1, 8)
journal.add(b"t" * 16, b"k" * 16)
"""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "journal", os.O_RDWR | os.O_CREAT, 0o600)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def board(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "board", os.O_RDWR | os.O_CREAT, 0o600)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def journal(file: int, board: int) -> ClaimJournal:
    return ClaimJournal(file, board, OWNER, processes=2, slots=3, claims=4)


def test_a_deadline_is_read_by_who_watches_and_none_is_none(journal: ClaimJournal, file: int) -> None:
    before = read_deadline(file)

    journal.note_deadline(since_boot_ns())
    noted = read_deadline(file)
    journal.note_deadline(None)
    os.truncate(file, 100)

    assert before is None
    assert noted is not None
    assert 0 <= since_boot_ns() - noted < 60e9
    assert read_deadline(file) is None
    assert read_deadline(-1) is None


@pytest.fixture
def folder(tmp_path: Path) -> JournalFolder:
    return JournalFolder.open(str(tmp_path / "journals"), "")


def test_a_new_journal_says_whose_it_is_and_that_nothing_is_held(
    journal: ClaimJournal, file: int, board: int
) -> None:
    before = since_boot_ns()
    journal.alive()

    left = read(file, board)

    assert (left.owner, left.claims, left.prefixes) == (OWNER, {}, [])
    assert left.owner.started == started(os.getpid())
    assert before <= left.alive_boot_ns <= since_boot_ns()


def test_claims_are_there_from_when_they_are_taken_until_they_are_settled(
    journal: ClaimJournal, file: int, board: int
) -> None:
    place = journal.add(TASK, TOKEN)
    journal.add(OTHER, NEWER)
    assert read(file, board).claims == {TASK: TOKEN, OTHER: NEWER}

    journal.drop(place)

    assert read(file, board).claims == {OTHER: NEWER}


def test_it_says_in_which_cell_each_claim_was_made(journal: ClaimJournal, file: int, board: int) -> None:
    tasks = [bytes([number]) * 16 for number in range(4)]
    places = [journal.add(task, TOKEN, cell) for task, cell in zip(tasks, ("a", "", "b", "a"), strict=True)]

    journal.note_batch(places[2:], 3)
    journal.note_batch(places[3:], 0)

    left = read(file, board)
    assert left.claims.keys() == set(tasks)
    assert left.cells == {tasks[0]: "a", tasks[2]: "b", tasks[3]: "a"}
    assert left.batches == {tasks[2]: 3}


def test_of_more_cells_than_it_has_room_for_claims_are_not_journaled(file: int, board: int) -> None:
    journal = ClaimJournal(file, board, OWNER, 1, 1, claims=200)
    for number in range(130):
        journal.add(number.to_bytes(16, "big"), TOKEN, f"c{number}")

    left = read(file, board)

    assert len(left.claims) == len(left.cells) == 128


def test_it_believes_the_names_that_the_directory_takes() -> None:
    assert claim_journal.CELL_NAME.pattern.decode() == directory.CELL_NAME.pattern


def test_a_name_that_no_cell_can_have_is_not_believed(journal: ClaimJournal, file: int, board: int) -> None:
    journal.add(TASK, TOKEN, "a")
    content = os.pread(file, 3 * 4096, 0)
    os.pwrite(file, b"A\nb", content.index(b"a".ljust(32, b"\0"), 2 * 4096))

    left = read(file, board)

    assert (left.claims, left.cells) == ({TASK: TOKEN}, {})


def test_a_journal_of_a_release_before_cells_is_read(journal: ClaimJournal, file: int, board: int) -> None:
    place = journal.add(TASK, TOKEN)
    journal.add(OTHER, NEWER)
    content = bytearray(os.pread(file, os.fstat(file).st_size, 0))
    content[place : place + 8] = (1 | 5 << 1).to_bytes(8, "little")  # the batch was above the first bit
    os.pwrite(file, b"DULYCJ02" + content[8 : 2 * 4096] + content[3 * 4096 :], 0)
    os.ftruncate(file, len(content) - 4096)

    left = read(file, board)

    assert left.claims == {TASK: TOKEN, OTHER: NEWER}
    assert (left.batches, left.cells) == ({TASK: 5}, {})


def test_it_says_which_claims_share_a_call_until_they_run_alone(
    journal: ClaimJournal, file: int, board: int
) -> None:
    places = [journal.add(bytes([number]) * 16, TOKEN) for number in range(3)]

    journal.note_batch(places, 7)
    journal.note_batch(places[1:2], 0)
    journal.drop(places[2])

    left = read(file, board)
    assert left.claims.keys() == {bytes(16), b"\1" * 16}
    assert left.batches == {bytes(16): 7}


def test_it_says_what_its_board_shows_and_which_processes_write_there(
    journal: ClaimJournal, file: int, board: int
) -> None:
    SlotWriter(board, 1, 3).started(2, TASK, 7)
    journal.note_process(1, os.getpid())
    journal.note_process(0, os.getppid())

    journal.note_process(0, 0)

    left = read(file, board)
    assert left.board.running(1).__next__() == RunningTask(1, 2, TASK, 7)
    assert left.leaders == {os.getpid(): started(os.getpid())}


def test_what_finds_no_room_is_not_journaled_and_does_no_harm(
    journal: ClaimJournal, file: int, board: int
) -> None:
    places = [journal.add(bytes([number]) * 16, TOKEN) for number in range(4)]
    assert journal.add(TASK, TOKEN) == 0
    journal.drop(0)
    assert TASK not in read(file, board).claims

    journal.drop(places[1])

    assert journal.add(TASK, TOKEN) == places[1]
    assert read(file, board).claims.keys() == {b"\0" * 16, b"\2" * 16, b"\3" * 16, TASK}


def test_a_claim_of_another_length_is_not_journaled(journal: ClaimJournal, file: int, board: int) -> None:
    assert journal.add(b"short", TOKEN) == 0
    assert read(file, board).claims == {}


def test_a_claim_whose_writer_was_killed_before_its_last_step_is_not_there(
    journal: ClaimJournal, file: int, board: int
) -> None:
    place = journal.add(TASK, TOKEN)
    journal.drop(place)

    os.pwrite(file, OTHER, place + 8)

    assert read(file, board).claims == {}


def test_prefixes_are_there_until_they_are_forgotten(journal: ClaimJournal, file: int, board: int) -> None:
    first, second = new_prefix(), new_prefix()
    journal.note_prefix(first)
    journal.note_prefix(second)
    journal.note_prefix(second)
    assert sorted(read(file, board).prefixes) == sorted([first, second])

    journal.forget_prefix(first)
    journal.forget_prefix(new_prefix())

    assert read(file, board).prefixes == [second]


def test_of_many_prefixes_that_nobody_forgets_the_newest_are_kept(
    journal: ClaimJournal, file: int, board: int
) -> None:
    prefixes = [new_prefix() for _ in range(100)]

    for prefix in prefixes:
        journal.note_prefix(prefix)

    assert sorted(read(file, board).prefixes) == sorted(prefixes[-64:])


def test_whenever_a_writer_is_killed_each_claim_in_its_journal_is_one_that_it_noted(
    folder: JournalFolder, programs: Programs
) -> None:
    source = (
        HOLD
        + """
print("noting", flush=True)
places = []
for number in range(1 << 60):
    name = number.to_bytes(16)
    journal.note_prefix(name[2:])
    places.append(journal.add(name, name))
    if len(places) > 6:
        journal.drop(places.pop(0))
"""
    )
    for _ in range(5):
        writer = programs.start(source, folder.path)
        writer.wait_for_line("noting")
        writer.process.kill()
        writer.wait()

        taken = folder.take(*folder.names())
        assert taken is not None
        assert taken.left is not None
        claims = dict(taken.left.claims)
        assert claims.pop(TASK) == TOKEN
        assert len(claims) <= 7
        assert all(task_id == token for task_id, token in claims.items())
        taken.remove()


@pytest.mark.parametrize("size", [0, 7, 100, 4096, 8191, 8192, 8192 + 100, 8192 + 4 * 40 + 31])
def test_a_journal_that_is_not_whole_is_refused(
    journal: ClaimJournal, file: int, board: int, size: int
) -> None:
    journal.add(TASK, TOKEN)
    content = os.pread(file, 1 << 20, 0)
    with open(f"/proc/self/fd/{file}", "rb+") as part:  # noqa: PTH123 (it has no other name here)
        part.truncate(size)
        assert len(content) > size
        with pytest.raises(ValueError, match=r"not a claim journal"):
            read(file, board)
        part.truncate(len(content))  # the mapping must not lose its file
        part.write(content)


def test_a_journal_of_a_shape_that_cannot_be_is_refused(journal: ClaimJournal, file: int, board: int) -> None:
    for place in range(8, 20, 2):
        was = os.pread(file, 2, place)
        os.pwrite(file, b"\xff\xff", place)

        with pytest.raises(ValueError, match=r"not a claim journal"):
            read(file, board)

        os.pwrite(file, was, place)
    assert read(file, board).owner == OWNER
    assert journal.board.slots == 3


def test_a_journal_tells_no_sign_of_life_that_is_still_to_come(
    journal: ClaimJournal, file: int, board: int
) -> None:
    os.pwrite(file, b"\xff" * 8, 24)

    assert read(file, board).alive_boot_ns <= since_boot_ns()
    assert journal.board.slots == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"pid": 1},
        {"pid": -7},
        {"pid": 2**31},
        {"started": -1},
        {"started": 10**30},
        {"callback_uid": -1},
        {"callback_uid": 2**32},
        {"executor_id": ""},
        {"executor_id": "a\x00b"},
        {"executor_id": "\ud800"},
        {"cgroup": "/sys/fs/cgroup/\n"},
    ],
    ids=str,
)
def test_a_journal_whose_owner_cannot_be_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    file, board = (os.open(tmp_path / name, os.O_RDWR | os.O_CREAT, 0o600) for name in "jb")
    journal = ClaimJournal(file, board, replace(OWNER, **wrong), 1, 1, 1)

    with pytest.raises(ValueError, match=r"an owner that cannot be"):
        read(file, board)
    assert journal.board.slots == 1


@pytest.mark.parametrize("said", [b"{}", b"[]", b"noise", b'{"pid": "1"}', b"[" * 5000, b"9" * 5000])
def test_a_journal_that_does_not_say_whose_it_is_is_refused(
    journal: ClaimJournal, file: int, board: int, said: bytes
) -> None:
    place = os.pread(file, 1 << 20, 0).index(b'{"executor_id"')
    os.pwrite(file, said, place)
    os.pwrite(file, len(said).to_bytes(4, "little"), 8)

    with pytest.raises(ValueError, match=r"whose it is|Expecting value|Exceeds the limit"):
        read(file, board)
    assert journal.board.processes == 2


def test_the_journal_of_a_living_process_cannot_be_taken_and_that_of_a_killed_one_can(
    folder: JournalFolder, programs: Programs
) -> None:
    owner = programs.start(HOLD + "print('ready', flush=True); sys.stdin.read()", folder.path)
    owner.wait_for_line("ready")
    (name,) = folder.names()
    assert name == folder.name_of("host:1:abc")
    assert folder.take(name) is None

    owner.process.kill()
    owner.wait()

    taken = folder.take(name)
    assert taken is not None
    assert taken.left is not None
    assert taken.left.owner.pid == owner.process.pid
    assert taken.left.claims == {TASK: TOKEN}


def test_a_process_that_inherited_the_board_does_not_keep_the_lock(
    folder: JournalFolder, programs: Programs
) -> None:
    source = """
import subprocess
fd = journal.board.descriptor
child = subprocess.Popen(["/bin/sleep", "1000"], pass_fds=[fd])
print("child", child.pid, flush=True)
sys.stdin.read()
"""
    owner = programs.start(HOLD + source, folder.path)
    child = owner.number_in("child")
    try:
        owner.process.kill()
        owner.wait()

        assert folder.take(*folder.names()) is not None
    finally:
        os.kill(child, 9)


def test_of_two_that_want_a_journal_one_gets_it(folder: JournalFolder) -> None:
    subprocess.run([sys.executable, "-c", HOLD, folder.path], check=True)
    (name,) = folder.names()
    taken = folder.take(name)
    assert taken is not None
    assert folder.take(name) is None

    taken.leave()
    again = folder.take(name)

    assert again is not None
    again.remove()
    assert folder.take(name) is None
    assert list(folder.path.iterdir()) == []


@pytest.mark.parametrize("what", ["a pipe", "a folder", "a link"])
def test_what_only_has_the_name_of_a_journal_or_a_board_is_left_alone(
    folder: JournalFolder, tmp_path: Path, what: str
) -> None:
    (tmp_path / "precious").write_text("kept")
    make: dict[str, Callable[[Path], None]] = {
        "a pipe": os.mkfifo,
        "a folder": os.mkdir,
        "a link": lambda path: path.symlink_to("../precious"),
    }
    subprocess.run([sys.executable, "-c", HOLD, folder.path], check=True)
    (name,) = folder.names()
    make[what](folder.path / "strange.claims")
    board = (folder.path / name).with_suffix(".board")
    board.unlink()
    make[what](board)

    assert folder.take("strange.claims") is None
    taken = folder.take(name)

    assert taken is not None
    assert taken.left is None
    assert (tmp_path / "precious").read_text() == "kept"


def test_a_journal_whose_file_cannot_be_made_is_read_by_who_has_opened_its_memory(
    folder: JournalFolder,
) -> None:
    journal = JournalFolder(folder.path / "nowhere").create(OWNER, 1, 1, 8)

    journal.add(TASK, TOKEN)
    SlotWriter(journal.board.descriptor, 0, 1).started(0, TASK, 1)

    taken = TakenJournal.in_memory(os.dup(journal.descriptor), os.dup(journal.board.descriptor))
    assert taken.left is not None
    assert taken.left.claims == {TASK: TOKEN}
    assert [entry.task_id for entry in taken.left.board.running()] == [TASK]
    taken.remove()


def test_a_journal_in_use_looks_so_to_what_cleans_up_old_files(
    file: int, board: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = ClaimJournal(file, board, OWNER, 1, 1, 8)
    for each in (file, board):
        os.utime(each, (0, 0))
    journal.alive()
    assert os.fstat(file).st_mtime == 0

    now = since_boot_ns()
    monkeypatch.setattr("duly_core.host.claim_journal.since_boot_ns", lambda: now + 3600 * 10**9)
    journal.alive()

    assert os.fstat(file).st_mtime > 0
    assert os.fstat(board).st_mtime > 0


def test_the_folder_is_its_users_alone_and_each_installation_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    one, other = (JournalFolder.open("", address).path for address in ("10.0.0.1:7402", "10.0.0.2:7402"))

    assert one != other
    assert {stat.S_IMODE(path.stat().st_mode) for path in (one, other)} == {0o700}
    assert JournalFolder.open("", "10.0.0.1:7402").path == one


def test_a_folder_that_others_can_reach_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)

    with pytest.raises(SettingsError, match=r"DULY_EXECUTOR_JOURNAL_FOLDER"):
        JournalFolder.open(str(tmp_path / "open"), "")


def test_processes_of_another_boot_of_this_host_are_gone_and_those_of_another_namespace_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("duly_core.host.claim_journal.machine_id", lambda: "this machine")
    rebooted = replace(OWNER, boot_id="another", machine_id="this machine")
    contained = replace(OWNER, pid_namespace="another")

    assert (OWNER.can_be_proved_dead(), OWNER.is_gone_with_its_boot()) == (True, False)
    assert (rebooted.can_be_proved_dead(), rebooted.is_gone_with_its_boot()) == (False, True)
    assert (contained.can_be_proved_dead(), contained.is_gone_with_its_boot()) == (False, False)
    assert not replace(rebooted, host="elsewhere").is_gone_with_its_boot()
    assert not replace(rebooted, machine_id="of the same name").is_gone_with_its_boot()


def test_of_a_machine_without_an_id_nothing_is_proved_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duly_core.host.claim_journal.machine_id", lambda: "")

    assert not replace(OWNER, boot_id="another", machine_id="").is_gone_with_its_boot()


def test_tokens_are_the_prefix_and_their_number() -> None:
    prefix = new_prefix()
    tokens = Tokens(prefix)

    assert tokens.take(2) == [prefix + b"\0\0", prefix + b"\0\1"]
    assert tokens.take(300)[-1] == prefix + (301).to_bytes(2, "big")
    assert len(prefix) == TOKEN_PREFIX_BYTES


def test_tokens_beyond_the_last_number_are_random() -> None:
    prefix = new_prefix()
    tokens = Tokens(prefix)
    assert tokens.take(65_536)[-1] == prefix + b"\xff\xff"

    beyond = tokens.take(2)

    assert [len(token) for token in beyond] == [16, 16]
    assert not any(token.startswith(prefix) for token in beyond)
