"""The limits of commands in control groups: by the kernel where it permits that, else by files that look like a group's."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from duly.command_lambdas.control_groups import CONTROLLERS, ControlGroup
from duly.command_lambdas.folder import RunFolder
from duly.command_lambdas.outcomes import Ended
from duly.command_lambdas.request import read_request
from duly.command_lambdas.supervised import Supervised
from duly_cli.startup.light_start import command_lambdas
from duly_core.host.cgroup import Cgroup, own_folder
from duly_core.host.slot_board import SlotBoard
from duly_core.process.identity import lives
from duly_executor.containment.cgroups_or_subreaper import open_containment
from duly_executor.containment.process_group import WATCHED
from duly_executor.processes.process import CallbackProcess
from tests.command_lambdas.allowed import command_lambda

SMALL = command_lambda(  # noqa: S604 (it is no subprocess)
    shell="/bin/bash",
    environment={"PATH": os.defpath.lstrip(":") + ":/usr/bin:/bin"},
    memory_limit=40 << 20,
    process_limit=20,
)


async def end_of(script: str, group: ControlGroup, folder: Path) -> tuple[Ended, bytes]:
    """Run a script in a group; its end, and what it wrote."""
    with RunFolder(folder) as run, run.unnamed_file() as out, run.unnamed_file() as errors:
        command = Supervised(SMALL, {1: out, 2: errors}, lambda *_: None)
        try:
            command.start(read_request(SMALL, {"script": script}), run, None, group)
            ended = await command.end()
        finally:
            await command.close()
        out.seek(0)
        return ended, out.read()


@pytest.fixture
def look_alike(tmp_path: Path) -> Path:
    """A folder with the files of a group; the kernel does nothing about them."""
    folder = tmp_path / "group"
    folder.mkdir()
    for name in ("cgroup.procs", "cgroup.kill", "memory.max", "memory.oom.group", "pids.max"):
        (folder / name).touch()
    (folder / "memory.events").write_text("low 0\nmax 7\noom 3\noom_kill 4\n")
    (folder / "pids.events").write_text("max 5\n")
    (folder / "memory.stat").write_text(f"anon 77\nshmem {LEFT_BEHIND}\nshmem_thp 5\n")
    return folder


@pytest.mark.parametrize(
    ("script", "limit"),
    [
        ("true", ""),  # what the kernel refused earlier commands is not this one's
        ("printf 'max 9\\noom 4\\noom_kill 5\\n' > {group}/memory.events; sleep 60", "memory"),
        ("echo max 6 > {group}/pids.events; sleep 60", "processes"),
        ("echo max 6 > {group}/pids.events", "processes"),
    ],
)
async def test_what_the_kernel_refuses_a_command_is_told_as_its_limit(
    look_alike: Path, tmp_path: Path, script: str, limit: str
) -> None:
    ended, _ = await end_of(script.format(group=look_alike), ControlGroup(look_alike), tmp_path)

    assert ended.limit == limit
    said = {name: (look_alike / name).read_text() for name in ("cgroup.procs", "memory.max", "pids.max")}
    assert said == {"cgroup.procs": "0", "memory.max": str((40 << 20) + LEFT_BEHIND), "pids.max": "20"}
    assert set((look_alike / "cgroup.kill").read_text()) == {"1"}


NOBODY = 65534
LEFT_BEHIND = 4096
"""Bytes of files in a tmpfs."""
SHARED = Path(f"/dev/shm/duly-test-{os.getpid()}")


# ---- real ones -----------------------------------------------------------------------------------------


def limited(name: str) -> Cgroup:
    """A group in which groups have limits. Raises OSError."""
    base = own_folder()
    if base is None:
        raise FileNotFoundError
    group = Cgroup.make(base / f"duly-test-{name}-{os.getpid()}")
    try:
        Cgroup(base).enable(CONTROLLERS)
        group.enable(CONTROLLERS)
    except OSError:
        group.remove()
        raise
    return group


def limits_are_permitted() -> bool:
    try:
        limited("trial").remove()
    except OSError:
        return False
    return True


by_the_kernel = pytest.mark.skipif(
    not limits_are_permitted(),
    reason="needs cgroup v2 with the controllers memory and pids (root, or systemd with DelegateSubgroup=)",
)


@pytest.fixture
def group() -> Iterator[ControlGroup]:
    with ExitStack() as stack:
        SHARED.mkdir()
        stack.callback(shutil.rmtree, SHARED)
        parent = limited("commands")
        stack.callback(parent.remove)
        yield ControlGroup(parent.folder / "command-0")


@by_the_kernel
@pytest.mark.parametrize(
    ("script", "limit"),
    [
        ("true", ""),
        ("head -c 30M /dev/zero | tail -c 1 > a", ""),
        ("head -c 60M /dev/zero | tail -c 60M | sleep 60", "memory"),
        ("for i in {1..9}; do head -c 7M /dev/zero > SHARED/$i; done; sleep 60", "memory"),
        ("for i in {1..60}; do (setsid sleep 60 &) ; done; sleep 60", "processes"),
        ("f() { f & f & sleep 60; }; f", "processes"),
    ],
)
async def test_the_kernel_holds_a_command_within_its_limits(
    group: ControlGroup, tmp_path: Path, script: str, limit: str
) -> None:
    ended, said = await end_of(f"echo $$; {script.replace('SHARED', str(SHARED))}", group, tmp_path)
    again, _ = await end_of("true", group, tmp_path)

    assert ended.limit == limit, ended
    assert not lives(int(said.split()[0]))
    assert again == Ended(seconds=again.seconds, cpu_seconds=again.cpu_seconds)


@by_the_kernel
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become others")
def test_a_process_that_became_another_user_moves_into_a_group_and_cannot_leave_it(
    group: ControlGroup,
) -> None:
    base = own_folder()
    assert base is not None
    child = os.fork()
    if child == 0:
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        with suppress(OSError):
            os.write(group.descriptors["cgroup.procs"], b"0")
            (base / "cgroup.procs").write_text("0")
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.waitpid(child, os.WUNTRACED)

    entered = Path(f"/proc/{child}/cgroup").read_text()
    group.kill()

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert "/command-0\n" in entered


COMMANDS = '[lambdas."chores/bash"]\nshell = true\n'


@by_the_kernel
async def test_a_callback_process_of_commands_has_a_limited_group_for_each_slot(
    tmp_path: Path, in_root: None
) -> None:
    (tmp_path / "commands.toml").write_text(COMMANDS)
    application = command_lambdas(str(tmp_path / "commands.toml"))
    with capture_logs() as logs:
        containment = open_containment("cgroup", application)
    tree = containment.tree(0)
    process = await CallbackProcess.start(0, "executor-id", application, SlotBoard.create(1, 2), tree)

    await process.hello()

    entered = Path(tree.folder)
    assert str(process.process.pid) in (entered / "cgroup.procs").read_text().split()
    made = [*entered.parent.glob("command-*")]
    assert {each.name for each in made} == {"command-0", "command-1"}
    assert {(each / "memory.oom.group").read_text() for each in made} == {"1\n"}
    assert "limits of commands are held by cgroups" in [each["event"] for each in logs]
    process.kill()
    await process.ended()
    await containment.close()
    assert not Path(containment.folder).exists()


@pytest.mark.parametrize(
    ("application", "said"), [("duly.command_lambdas:{}", [WATCHED]), ("examples.hello:app", [])]
)
def test_a_worker_of_commands_says_where_its_supervisors_watch_them(
    application: str, said: list[str]
) -> None:
    with capture_logs() as logs:
        open_containment("subreaper", application)

    assert [each["event"] for each in logs] == said
