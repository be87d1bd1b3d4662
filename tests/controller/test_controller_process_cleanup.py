"""Nothing of a dead Executor's callbacks is left when its tasks may run again."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from duly_controller.process_cleanup import kill_leftover_processes
from duly_core.host.claim_journal import JournalContents, Owner
from duly_core.host.slot_board import SlotBoard
from duly_core.process.identity import started, status
from tests.fixtures.programs import is_alive
from tests.fixtures.waiting import until

# A callback process that starts another, says which, and ends: the other has lost its leader.
LEADER = """
import subprocess, sys
child = subprocess.Popen(["sleep", "1000"], start_new_session={escapes}, env={environment}, stdout=2)
print(child.pid, flush=True)
"""


@pytest.fixture
def executor() -> Iterator[JournalContents]:
    """What a dead Executor left: it was the parent of one callback process."""
    board = SlotBoard.create(1, 1)
    owner = replace(Owner.this_process(uuid4().hex), pid=2**22 + 1)
    yield JournalContents(owner, {}, [], 0, {}, board)
    os.close(board.descriptor)


@pytest.fixture
def stranger() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True) as process:
        yield process
        process.kill()


def orphan_of(executor: JournalContents, *, escapes: bool, environment: str) -> int:
    source = LEADER.format(escapes=escapes, environment=environment)
    with subprocess.Popen(
        [sys.executable, "-c", source],
        start_new_session=True,
        env={"PATH": "/usr/bin:/bin", "DULY_EXECUTOR_ID": executor.owner.executor_id},
        stdout=subprocess.PIPE,
        text=True,
    ) as leader:
        executor.leaders[leader.pid] = started(leader.pid) or 0
        assert leader.stdout is not None
        return int(leader.stdout.readline())


@pytest.mark.parametrize(
    ("escapes", "environment"),
    [
        pytest.param(False, "None", id="in its group"),
        pytest.param(True, "None", id="in a session of its own"),
        pytest.param(False, "{}", id="in its group, without its environment"),
    ],
)
async def test_what_a_dead_callback_process_started_is_killed(
    executor: JournalContents, escapes: bool, environment: str
) -> None:
    orphan = orphan_of(executor, escapes=escapes, environment=environment)
    assert is_alive(orphan)

    async with asyncio.timeout(10):
        await kill_leftover_processes(executor, end_was_seen=True)

    assert not is_alive(orphan)


async def test_of_an_executor_that_died_long_ago_the_numbers_of_its_processes_say_nothing(
    executor: JournalContents,
) -> None:
    stranger = orphan_of(executor, escapes=False, environment="{}")

    async with asyncio.timeout(10):
        await kill_leftover_processes(executor, end_was_seen=False)

    assert is_alive(stranger)
    os.kill(stranger, signal.SIGKILL)


async def test_a_stranger_that_got_the_number_of_a_callback_process_lives_on(
    executor: JournalContents, stranger: "subprocess.Popen[bytes]"
) -> None:
    executor.leaders[stranger.pid] = (started(stranger.pid) or 0) - 1

    async with asyncio.timeout(10):
        await kill_leftover_processes(executor, end_was_seen=True)

    assert stranger.poll() is None


async def test_who_only_names_an_executor_in_his_arguments_lives_on(executor: JournalContents) -> None:
    with sleeper(executor.owner.executor_id) as operator:
        async with asyncio.timeout(10):
            await kill_leftover_processes(executor, end_was_seen=True)

        assert operator.poll() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users")
async def test_of_other_users_processes_none_is_killed_whatever_it_says_of_itself(
    executor: JournalContents,
) -> None:
    left = replace(executor, owner=replace(executor.owner, callback_uid=65_534))
    said = {"DULY_EXECUTOR_ID": executor.owner.executor_id}
    with sleeper(user=1, env=said) as stranger, sleeper(user=65_534, env=said) as ours:
        async with asyncio.timeout(10):
            await kill_leftover_processes(left, end_was_seen=True)

        assert stranger.poll() is None
        assert ours.wait(10) == -signal.SIGKILL


# It becomes another user, names itself, and says that it did. Its first thread may end, while another runs on.
DISGUISED = """
import ctypes, os, sys, threading, time
libc = ctypes.CDLL(None)
os.setuid(65534)
libc.prctl(15, sys.argv[1].encode())
threading.Thread(target=time.sleep, args=(1000,)).start()
print("ready", flush=True)
if sys.argv[2] == "ends":
    libc.syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users")
@pytest.mark.parametrize(
    ("name", "first_thread"),
    [
        pytest.param("\rUid:\t1", "stays", id="with a name that looks like the line of its user"),
        pytest.param("\rUid:\tx", "stays", id="with a name that looks like the line of no user"),
        pytest.param("\x85Uid:\t1", "stays", id="with another end of a line in its name"),
        pytest.param("plain", "ends", id="whose first thread has ended"),
    ],
)
async def test_a_process_that_disguises_itself_is_killed_all_the_same(
    executor: JournalContents, name: str, first_thread: str
) -> None:
    left = replace(executor, owner=replace(executor.owner, callback_uid=65_534))
    with disguised(name, first_thread, executor.owner.executor_id) as process:
        if first_thread == "ends":
            await until(lambda: (status(process.pid) or ["gone"])[0] == "Z")

        async with asyncio.timeout(10):
            await kill_leftover_processes(left, end_was_seen=True)

        assert process.wait(10) == -signal.SIGKILL


@contextmanager
def disguised(name: str, first_thread: str, executor_id: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process of the user 65534 in the environment of a callback process, with this name."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", DISGUISED, name, first_thread],
        stdout=subprocess.PIPE,
        env={"DULY_EXECUTOR_ID": executor_id},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


@contextmanager
def sleeper(argument: str = "", **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """A process with this among its arguments."""
    with subprocess.Popen(
        ["/bin/sh", "-c", "read line", argument], stdin=subprocess.PIPE, **options
    ) as process:
        yield process
        process.kill()


async def test_a_cgroup_of_an_executors_making_that_is_none_is_left_alone(
    executor: JournalContents, stranger: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    owner = executor.owner
    fake = tmp_path / f"duly-{owner.pid_namespace}-{owner.pid}-{owner.started}"
    fake.mkdir()
    (tmp_path / "precious").write_text("kept")
    (fake / "cgroup.procs").write_text(f"{stranger.pid}\n")
    (fake / "cgroup.events").write_text("populated 1\n")
    (fake / "cgroup.freeze").symlink_to(tmp_path / "precious")

    async with asyncio.timeout(10):
        await kill_leftover_processes(
            replace(executor, owner=replace(owner, cgroup=str(fake))), end_was_seen=True
        )

    assert stranger.poll() is None
    assert (tmp_path / "precious").read_text() == "kept"
    assert fake.is_dir()
