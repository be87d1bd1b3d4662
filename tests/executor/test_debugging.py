"""A debugger attaches to a callback process, and the task at a breakpoint stays where it is."""

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest

from duly_core.errors import SettingsError
from duly_executor.settings import ExecutorSettings
from duly_local.ports import free_ports
from duly_wire.v1 import hsc_pb2
from tests.chaos import process_tree
from tests.fixtures import callbacks
from tests.fixtures.debug_adapter import Debugger
from tests.fixtures.host import SECOND, Host, claimed, gone, value_of

_CALLBACKS = Path(callbacks.__file__)
_LINES = _CALLBACKS.read_text(encoding="utf-8").splitlines()
IN_ECHO = 1 + next(number for number, line in enumerate(_LINES) if line == "    return payload")


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


async def attached(port: int) -> Debugger:
    """A debugger with a breakpoint in `test.echo`."""
    debugger = await asyncio.to_thread(Debugger, port)
    await asyncio.to_thread(debugger.attach)
    await asyncio.to_thread(debugger.break_at, _CALLBACKS, IN_ECHO)
    return debugger


async def test_a_task_at_a_breakpoint_is_neither_killed_nor_given_up_after_its_max_runtime(
    host: Host, port: int
) -> None:
    task = claimed("test.echo", {"to": "Ann"}, max_runtime=SECOND / 10)
    await host.ready("--debug-port", port)
    debugger = await attached(port)

    host.hand_out(task)
    thread = await asyncio.to_thread(debugger.hit)
    variables = await asyncio.to_thread(debugger.local_variables, thread)
    for _ in range(4):  # one each 250 ms
        await host.hsc.beat_of(task)
    assert host.hsc.result_of(task) is None
    await asyncio.to_thread(debugger.go_on, thread)

    assert variables["payload"] == "{'to': 'Ann'}"
    assert value_of(await host.hsc.end_of(task)) == {"to": "Ann"}
    debugger.close()


async def test_a_debugger_attaches_to_the_successor_of_a_process_that_was_killed(
    host: Host, port: int
) -> None:
    first, second = host.stubborn(), claimed("test.echo", 7)
    executor = await host.ready("--debug-port", port)
    (await attached(port)).close()
    os.kill(await host.running(first), signal.SIGKILL)
    await host.hsc.end_of(first)

    debugger = await attached(port)
    host.hand_out(second)
    thread = await asyncio.to_thread(debugger.hit)
    await asyncio.to_thread(debugger.go_on, thread)

    assert value_of(await host.hsc.end_of(second)) == 7
    debugger.close()
    helpers = process_tree.descendants(executor.pid)
    executor.kill(signal.SIGTERM)
    await executor.exit_code()
    for helper in helpers:
        await gone(helper)


async def test_a_port_that_is_taken_is_refused(host: Host, port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        executor = host.start("--debug-port", port)

        assert await executor.exit_code() == os.EX_CONFIG

    assert f"the debugger cannot listen on 127.0.0.1:{port}: Address already in use" in executor.output


async def test_without_debugpy_the_executor_says_what_to_install(
    host: Host, port: int, tmp_path: Path
) -> None:
    (tmp_path / "debugpy.py").write_text("raise ModuleNotFoundError('nobody installed debugpy')\n", "utf-8")

    executor = host.start("--debug-port", port, PYTHONPATH=str(tmp_path))

    assert await executor.exit_code() == os.EX_CONFIG
    assert "pip install debugpy" in executor.output


def test_one_port_is_for_one_process() -> None:
    with pytest.raises(SettingsError, match=r"leave processes \(--processes\) at 1"):
        ExecutorSettings.load(debug_port=5678, processes=2)


async def test_a_debugger_attaches_again_after_a_cancel_killed_the_callback(host: Host, port: int) -> None:
    cancelled, after = host.stubborn(), claimed("test.echo", 7)
    executor = await host.ready("--debug-port", port, DULY_EXECUTOR_CANCEL_GRACE="100ms")
    await host.running(cancelled)
    host.hsc.verdicts[cancelled.claim.task_id] = hsc_pb2.HEARTBEAT_VERDICT_CANCEL_REQUESTED
    await host.hsc.end_of(cancelled)

    debugger = await attached(port)
    host.hand_out(after)
    thread = await asyncio.to_thread(debugger.hit)
    await asyncio.to_thread(debugger.go_on, thread)

    assert value_of(await host.hsc.end_of(after)) == 7
    assert "no debugger can attach" not in executor.output
    debugger.close()
