"""Callbacks as another user than the worker: who they are, what they may, and that they end with their Executor."""

import os
import pwd
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from duly_core.errors import SettingsError
from duly_core.host.slot_board import SlotBoard
from duly_executor.containment.process_group import ProcessTree
from duly_executor.processes.process import CallbackProcess
from duly_executor.settings import ExecutorSettings
from tests.fixtures.callback_process import SLOTS, Callbacks
from tests.fixtures.host import claimed, value_of

APPLICATION = """
import ctypes, os, subprocess
import duly

app = duly.App()
signal = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(signal))  # of this thread, the one that Duly started the process in

@app.callback("who.am_i")
def who() -> dict[str, object]:
    try:
        os.setuid(0)
        back = True
    except PermissionError:
        back = False
    return {
        "ids": [*os.getresuid(), *os.getresgid()], "groups": os.getgroups(), "home": os.environ["HOME"],
        "dies_by": signal.value, "back": back, "descriptors": bool(os.listdir("/proc/self/fd")),
        "named": "DULY_CALLBACK_USER" in os.environ,
        "no_new_privileges": "NoNewPrivs:\\t1" in subprocess.check_output(["cat", "/proc/self/status"], text=True),
    }
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may start processes of other users")


def _is_readable_by_others() -> bool:
    """Whether another user finds this Python and the packages."""
    found = Path(sys.prefix).resolve()
    return all(folder.stat().st_mode & 0o001 for folder in (found, *found.parents))


@pytest.fixture
async def callbacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callbacks]:
    """A callback process of the user nobody."""
    if not _is_readable_by_others():
        pytest.skip("other users cannot read this Python")
    folder = Path("/tmp") / f"duly-callback-user-{os.getpid()}"
    folder.mkdir(mode=0o755, exist_ok=True)
    (folder / "who_am_i.py").write_text(APPLICATION)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.chdir(folder)
    board = SlotBoard.create(1, SLOTS)
    process = await CallbackProcess.start(0, "executor-id", "who_am_i", board, ProcessTree(), "nobody")
    await process.hello()
    yield Callbacks(process, board)
    process.kill()
    await process.ended()
    (folder / "who_am_i.py").unlink()


async def test_a_callback_runs_as_the_user_and_cannot_go_back(callbacks: Callbacks) -> None:
    task = claimed("who.am_i")
    nobody = pwd.getpwnam("nobody")

    callbacks.give(task)
    found = value_of(await callbacks.result(task))

    assert found["ids"] == [nobody.pw_uid] * 3 + [nobody.pw_gid] * 3
    assert 0 not in found["groups"]
    assert found["home"] == nobody.pw_dir
    assert found["no_new_privileges"]
    assert (found["dies_by"], found["back"], found["descriptors"], found["named"]) == (9, False, True, False)


async def test_the_executor_kills_a_process_of_the_other_user(callbacks: Callbacks) -> None:
    callbacks.process.kill()

    assert await callbacks.process.ended() == -9


def test_a_user_that_the_system_does_not_have_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"executor\.callback_user .*no user 'nobody-like-that'"):
        ExecutorSettings.load(callback_user="nobody-like-that")
