"""Callbacks that mean harm: what they get hold of, and what they do to their Executor, to others' tasks and to others."""

import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from duly_executor.processes import frames
from duly_wire.v1 import callback_pb2, hsc_pb2, task_pb2
from tests.fixtures.controllers import ControllerUnderTest
from tests.fixtures.host import JOURNALS, LIVELY, Command, Host, claimed, until, value_of
from tests.fixtures.programs import is_alive

APP = "tests.fixtures.hostile_callbacks:app"
ROOT = Path(__file__).parents[2]


def is_readable_by_others() -> bool:
    """Whether another user finds this Python, the packages and the tests."""
    places = (ROOT, Path(sys.prefix).resolve())
    return all(folder.stat().st_mode & 0o001 for place in places for folder in (place, *place.parents))


needs_another_user = pytest.mark.skipif(
    os.geteuid() != 0 or not is_readable_by_others(),
    reason="only root may start processes of other users, and these must find Python",
)
SAME = pytest.param("", id="as the worker's user")
NOBODY = pytest.param("nobody", marks=needs_another_user, id="as nobody")


@pytest.fixture
def victim() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True) as process:
        yield process
        process.kill()


async def ready(host: Host, *arguments: object, **environment: str) -> Command:
    executor = host.start(*arguments, application=APP, **environment)
    await host.controller.until(lambda: host.controller.asked)
    return executor


async def told(host: Host, name: str, payload: Any = None) -> Any:
    """What a callback returned."""
    task = claimed(name, payload)
    host.hand_out(task)
    return value_of(await host.hsc.end_of(task))


@pytest.mark.parametrize("user", [SAME, NOBODY])
async def test_nothing_of_the_worker_is_open_in_callbacks_and_nothing_at_all_in_what_they_start(
    host: Host, user: str
) -> None:
    await ready(host, "--slots", 1, DULY_EXECUTOR_CALLBACK_USER=user)

    found = await told(host, "hostile.descriptors")

    for who, targets in found.items():
        theirs = [target for target in targets if "/proc/" not in target and not target.startswith("pipe:")]
        links = [target for target in theirs if target.startswith("socket:")]
        kept = {"/memfd:duly-last-words (deleted)", *links} if who in ("own", "fork") else set()
        output = {target for target in theirs if target.endswith(".log")}
        assert len(links) == (1 if kept else 0), f"{who}: {targets}"
        assert set(theirs) - output == {"/dev/null", *kept}, f"{who}: {targets}"


@needs_another_user
async def test_a_callback_of_another_user_harms_nobody(
    host: Host, victim: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    other, end = claimed("hostile.wait"), claimed("hostile.end")
    executor = await ready(
        host,
        "--processes",
        2,
        "--slots",
        1,
        DULY_EXECUTOR_CALLBACK_USER="nobody",
        DULY_EXECUTOR_RECALL_AFTER="1h",
    )
    host.hand_out(other)
    await host.hsc.beat_of(other)

    done = await told(host, "hostile.harm", _harm(victim, other, tmp_path))
    await host.hsc.beat_of(other)
    host.hand_out(end)
    ended = await host.hsc.end_of(end)

    assert done == []
    assert ended.outcome == hsc_pb2.OUTCOME_CRASHED
    assert (await told(host, "hostile.environment"))["USER"] == "nobody"
    assert host.hsc.result_of(other) is None
    assert other.claim not in host.hsc.releases
    items = [item for beat in host.hsc.beats for item in beat.items]
    assert not any(item.checkpoint or item.progress_note == "stolen" for item in items)
    assert "Heartbeat" in host.hsc.calls
    assert is_alive(victim.pid)
    assert executor.process.poll() is None


@needs_another_user
async def test_what_a_callback_of_another_user_wrote_harms_nobody_when_its_executor_is_dead(
    controller: ControllerUnderTest, victim: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    harm, running = claimed("hostile.harm", _harm(victim, claimed(), tmp_path)), claimed("hostile.wait")
    executor = controller.commands.start(
        "duly_executor",
        APP,
        "--controller",
        controller.address,
        "--slots",
        1,
        **{
            **LIVELY,
            "DULY_EXECUTOR_HSC_ADDRESS": controller.hsc.address,
            "DULY_EXECUTOR_CALLBACK_USER": "nobody",
        },
    )
    await controller.enqueue(harm)
    assert value_of(await controller.hsc.end_of(harm)) == []
    await controller.enqueue(running)
    await controller.hsc.beat_of(running)

    executor.kill(signal.SIGKILL)

    assert (await controller.hsc.end_of(running)).outcome == hsc_pb2.OUTCOME_CRASHED
    assert is_alive(victim.pid)
    await until(lambda: list((tmp_path / JOURNALS).iterdir()) == [])


async def test_a_result_that_no_callback_can_have_ends_its_task_and_nothing_else(host: Host) -> None:
    executor = await ready(host)
    task = claimed("hostile.outcome", 99)

    host.hand_out(task)

    result = await host.hsc.end_of(task)
    assert (result.outcome, result.failure_kind) == (
        hsc_pb2.OUTCOME_FATAL_FAILURE,
        task_pb2.FAILURE_KIND_BAD_RESULT,
    )
    assert await told(host, "hostile.environment")
    assert executor.process.poll() is None


async def test_a_result_goes_to_the_cell_of_its_claim_whatever_its_callback_says(host: Host) -> None:
    task = claimed("hostile.cell", "elsewhere")
    task.claim.cell = "a"
    host.start(application=APP)
    host.hand_out(task)

    result = await host.hsc.end_of(task)

    assert result.claim.cell == "a"


async def test_a_result_that_no_server_takes_is_not_sent_to_one(host: Host) -> None:
    await ready(host)
    task = claimed("hostile.flood", 20 * 1024 * 1024)

    host.hand_out(task)

    result = await host.hsc.end_of(task)
    assert result.failure_kind == task_pb2.FAILURE_KIND_BAD_RESULT
    assert "too large: 20,971" in result.failure_message
    assert host.hsc.calls.count("SetResults") == 1


EMPTY = bytes(4).hex()
TINY = frames.write(callback_pb2.CallbackReport(unstarted=[b"x" * 16])).hex()
MANY_ITEMS = (frames.LENGTH.pack(6_000_000) + b"\x12\x00" * 3_000_000).hex()


@pytest.mark.parametrize("frame", [EMPTY, MANY_ITEMS], ids=["empty frames", "a frame of 3 M empty results"])
async def test_a_process_that_sends_what_no_process_has_a_reason_to_send_is_killed(
    host: Host, frame: str
) -> None:
    await ready(host, "--processes", 2, "--slots", 1)
    task = claimed("hostile.frames", frame)

    host.hand_out(task)

    assert (await host.hsc.end_of(task)).outcome == hsc_pb2.OUTCOME_CRASHED


async def test_a_flood_of_frames_holds_up_no_heartbeats(host: Host) -> None:
    other, flood = claimed("hostile.wait"), claimed("hostile.frames", TINY)
    executor = await ready(host, "--processes", 2, "--slots", 1, DULY_EXECUTOR_RECALL_AFTER="1h")
    host.hand_out(other)
    await host.hsc.beat_of(other)

    host.hand_out(flood)
    await host.hsc.beat_of(flood)
    for _ in range(8):
        await host.hsc.beat_of(flood)

    assert executor.process.poll() is None


# ---- the environment ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", [SAME, NOBODY])
async def test_callbacks_see_no_secret_of_the_worker_but_those_that_are_named(host: Host, user: str) -> None:
    secrets = dict.fromkeys(("DULY_TOKEN", "DULY_RPC_TOKEN_FILE", "AWS_SECRET_ACCESS_KEY"), "")
    executor = await ready(
        host,
        **{
            **secrets,
            "DULY_EXECUTOR_CALLBACK_USER": user,
            "DULY_EXECUTOR_CALLBACK_ENVIRONMENT": "SHOP_*",
            "SHOP_DSN": "named",
            "DULY_ADDRESS": "127.0.0.1:7401",
        },
    )

    found = await told(host, "hostile.environment")

    assert not found.keys() & secrets.keys()
    assert (found["SHOP_DSN"], found["DULY_ADDRESS"]) == ("named", "127.0.0.1:7401")
    (line,) = (line for line in executor.output.splitlines() if "withheld from callbacks" in line)
    assert "AWS_SECRET_ACCESS_KEY" in line
    assert "executor.callback_environment" in line
    if user:
        there = pwd.getpwnam(user)
        assert [found[name] for name in ("HOME", "USER", "LOGNAME", "SHELL")] == [
            there.pw_dir,
            user,
            user,
            there.pw_shell,
        ]


async def test_a_callback_that_misses_a_withheld_variable_is_told_the_setting(host: Host) -> None:
    await ready(host, SHOP_DSN="secret")
    task = claimed("hostile.key_error", "SHOP_DSN")

    host.hand_out(task)

    message = (await host.hsc.end_of(task)).failure_message
    assert message.startswith(
        "KeyError: 'SHOP_DSN' (SHOP_DSN is withheld from callbacks: see executor.callback_environment"
    )


async def test_an_application_that_misses_a_withheld_variable_is_told_the_setting(
    host: Host, tmp_path: Path
) -> None:
    (tmp_path / "needs_dsn.py").write_text("import os\nos.environ['SHOP_DSN']\n")
    executor = host.start(application="needs_dsn:app", PYTHONPATH=str(tmp_path), SHOP_DSN="secret")

    assert await executor.exit_code() == 78

    assert "KeyError: 'SHOP_DSN'" in executor.output
    assert "SHOP_DSN: withheld from callbacks; name it in executor.callback_environment" in executor.output


def _harm(victim: "subprocess.Popen[bytes]", other: hsc_pb2.ClaimedTask, folder: Path) -> dict[str, Any]:
    return {
        "folder": str(folder / JOURNALS),
        "victim": victim.pid,
        "task": other.claim.task_id.hex(),
        "token": other.claim.token.hex(),
    }
