"""What callbacks start dies with them, however it hides, before their tasks may run elsewhere."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from duly_core.host.cgroup import Cgroup, own_folder
from duly_executor.containment.cgroups_or_subreaper import (
    Cgroups,
    Subreaper,
    open_containment,
    remove_abandoned,
)
from duly_wire.v1 import hsc_pb2, task_pb2
from tests.fixtures.controllers import ControllerUnderTest
from tests.fixtures.host import APP, HOUR, LIVELY, SECOND, Host, Journal, claimed, until, value_of
from tests.fixtures.programs import is_alive


def cgroups_are_permitted() -> bool:
    try:
        asyncio.run(Cgroups.open().close())
    except (OSError, subprocess.SubprocessError):
        return False
    return True


needs_cgroups = pytest.mark.skipif(
    not cgroups_are_permitted(), reason="no cgroup v2 can be made here (root or Delegate=yes may)"
)
CGROUP = pytest.param("cgroup", marks=needs_cgroups)
everywhere = pytest.mark.parametrize("mode", [CGROUP, "subreaper"])
_NOBODY = 65534
ONE_PROCESS = ("--processes", 1, "--slots", 2)


@pytest.fixture
def daemons(journal: Journal) -> Iterator["Daemons"]:
    made = Daemons(journal)
    yield made
    for pid in made.pids():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Daemons:
    """What the callbacks of a test left behind."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def pids(self) -> list[int]:
        return [int(line.split()[1]) for line in self._journal.lines("daemon")]

    async def first(self) -> int:
        pids: list[int] = await until(self.pids)
        return pids[0]


def daemonising(journal: Journal, then: str = "wait", **claim: object) -> hsc_pb2.ClaimedTask:
    return claimed("test.daemonise", {**journal.payload(), "then": then}, **claim)  # type: ignore[arg-type]


@everywhere
async def test_a_daemon_dies_when_max_runtime_ends_its_callback_and_before_that_is_told(
    host: Host, daemons: Daemons, mode: str
) -> None:
    task = daemonising(host.journal, max_runtime=SECOND / 2)
    await host.ready(*ONE_PROCESS, DULY_EXECUTOR_CONTAINMENT=mode)
    host.hand_out(task)
    daemon = await daemons.first()

    result = await host.hsc.end_of(task)

    assert not is_alive(daemon)
    assert result.failure_kind == task_pb2.FAILURE_KIND_MAX_RUNTIME


@everywhere
async def test_a_daemon_is_dead_when_the_crash_of_its_callback_process_is_told(
    host: Host, daemons: Daemons, mode: str
) -> None:
    task, after = daemonising(host.journal, "leave"), claimed()
    await host.ready(*ONE_PROCESS, DULY_EXECUTOR_CONTAINMENT=mode, DULY_EXECUTOR_RECALL_AFTER="1h")

    host.hand_out(task)
    result = await host.hsc.end_of(task)
    host.hand_out(after)

    assert not is_alive(await daemons.first())
    assert "ended with exit code 7" in result.failure_message
    assert value_of(await host.hsc.end_of(after)) is None


@needs_cgroups
async def test_a_daemon_is_dead_when_the_crash_of_its_executor_is_told(
    controller: ControllerUnderTest, journal: Journal, daemons: Daemons
) -> None:
    task = daemonising(journal, max_runtime=HOUR)
    executor = controller.executor(DULY_EXECUTOR_CONTAINMENT="cgroup")
    await controller.enqueue(task)
    daemon = await daemons.first()
    await journal.started(task)
    group = group_of(executor.pid)

    executor.kill(signal.SIGKILL)
    result = await controller.hsc.end_of(task)

    assert result.outcome == hsc_pb2.OUTCOME_CRASHED
    assert not is_alive(daemon)
    await until(lambda: not group.exists())


@needs_cgroups
async def test_the_groups_of_a_dead_executor_without_a_controller_are_cleared_by_the_next(
    host: Host, daemons: Daemons
) -> None:
    executor = await host.ready(DULY_EXECUTOR_CONTAINMENT="cgroup")
    host.hand_out(daemonising(host.journal))
    daemon = await daemons.first()
    group = group_of(executor.pid)
    executor.kill(signal.SIGKILL)
    await executor.exit_code()
    assert is_alive(daemon)

    await remove_abandoned(group.parent)

    assert not is_alive(daemon)
    assert not group.exists()


@needs_cgroups
async def test_an_executor_leaves_no_group_behind(host: Host) -> None:
    executor = await host.ready(DULY_EXECUTOR_CONTAINMENT="cgroup")
    group = group_of(executor.pid)
    assert list(group.glob("process-*"))

    executor.kill(signal.SIGTERM)

    assert await executor.exit_code() == 0
    assert not group.exists()


@needs_cgroups
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become others")
def test_who_is_not_root_kills_in_a_group_that_was_delegated_to_him() -> None:
    base = own_folder()
    assert base is not None
    group = Cgroup.make(base / f"duly-test-{os.getpid()}")
    with subprocess.Popen([shutil.which("sleep") or "sleep", "60"]) as victim:
        (group.folder / "cgroup.procs").write_text(str(victim.pid), encoding="ascii")
        for file in (group.folder, *group.folder.iterdir()):
            os.chown(file, _NOBODY, _NOBODY)

        child = os.fork()
        if child == 0:  # with everything imported already: nobody may be unable to read the checkout
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
            try:
                group.kill()
            except OSError as error:
                os._exit(error.errno or 1)
            os._exit(0)
        failure = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if failure:
            victim.kill()
        ending = victim.wait(15)

    group.remove()
    assert failure == 0, os.strerror(failure)
    assert ending == -signal.SIGKILL
    assert not group.folder.exists()


@needs_cgroups
def test_a_group_in_which_nothing_can_be_killed_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Cgroup) -> None:
        raise PermissionError(self.folder)

    base = own_folder()
    assert base is not None
    monkeypatch.setattr(Cgroup, "kill", refuse)

    assert isinstance(open_containment("auto"), Subreaper)

    assert not list(base.glob(f"duly-*-{os.getpid()}-*"))


@needs_cgroups
def test_without_cgroup_kill_what_forks_on_and_on_is_killed_one_by_one() -> None:
    base = own_folder()
    assert base is not None
    group = Cgroup.make(base / f"duly-test-{os.getpid()}")
    forker = (
        "import os, sys\nopen(sys.argv[1], 'w').write('0')\nprint('in', flush=True)\n"
        "while True:\n if os.fork(): os._exit(0)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", forker, str(group.folder / "cgroup.procs")],
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()

        while not group.is_empty():
            group.kill_one_by_one()

    group.remove()
    assert not group.folder.exists()


async def test_a_daemon_dies_with_the_process_that_started_it_though_others_live(
    host: Host, daemons: Daemons
) -> None:
    quick, other = daemonising(host.journal), host.waiting()
    await host.ready("--processes", 2, "--slots", 1, DULY_EXECUTOR_CONTAINMENT="subreaper")
    host.hand_out(quick, other)
    first = await host.journal.started(quick)
    second = await host.journal.started(other)
    daemon = await daemons.first()

    os.kill(first, signal.SIGKILL)
    await host.hsc.end_of(quick)

    assert not is_alive(daemon)
    assert is_alive(second)


async def test_orphans_that_end_by_themselves_are_buried_with_their_process(host: Host) -> None:
    executor = await host.ready(*ONE_PROCESS, DULY_EXECUTOR_CONTAINMENT="subreaper")
    task = daemonising(host.journal)
    host.hand_out(task)
    process = await host.journal.started(task)
    (daemon,) = (int(line.split()[1]) for line in host.journal.lines("daemon"))

    os.kill(daemon, signal.SIGKILL)
    os.kill(process, signal.SIGKILL)

    await until(lambda: not Path(f"/proc/{daemon}").exists())  # not even as a zombie
    assert is_alive(executor.pid)


async def test_where_cgroups_are_demanded_and_not_to_be_had_an_executor_says_so_and_gives_up(
    host: Host,
) -> None:
    executor = host.commands.start(
        "tests.fixtures.executor_without_cgroups",
        APP,
        "--controller",
        host.controller.address,
        **{**LIVELY, "DULY_EXECUTOR_HSC_ADDRESS": host.hsc.address, "DULY_EXECUTOR_CONTAINMENT": "cgroup"},
    )

    assert await executor.exit_code() == 78
    assert "executor.containment is cgroup, but no cgroup can be made" in executor.output


def test_the_own_cgroup_is_found_through_any_mount(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("4:memory:/elsewhere\n0::/host.slice/duly.service\n")
    (tmp_path / "mountinfo").write_text(
        "30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "31 23 0:27 /host.slice /mnt/a\\040place rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
    )

    assert own_folder(tmp_path) == Path("/mnt/a place/duly.service")


@pytest.mark.parametrize("groups", ["4:memory:/x\n", "0::/../outside\n"])
def test_without_a_cgroup_of_version_two_in_sight_there_is_none(tmp_path: Path, groups: str) -> None:
    (tmp_path / "cgroup").write_text(groups)
    (tmp_path / "mountinfo").write_text("31 23 0:27 / /mnt rw - cgroup2 cgroup2 rw\n")

    assert own_folder(tmp_path) is None


def group_of(executor: int) -> Path:
    """The cgroup of an Executor's callback processes."""
    base = own_folder()
    assert base is not None
    (folder,) = base.glob(f"duly-*-{executor}-*")
    return folder
