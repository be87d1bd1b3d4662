"""`duly top`: what waits, runs, comes and goes, on a terminal, in a pipe and as JSON."""

import asyncio
import fcntl
import json
import os
import pty
import struct
import sys
import termios
from datetime import UTC, datetime, timedelta

import duly
from duly_cli.fleet.top import _fitted
from duly_cli.fleet.top_rates import RateMeter
from tests.fixtures.task_states import LAMBDA

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
NONE = duly.TaskCount(0)


def a_queue(at, live, scheduled, *, estimated=False):
    return duly.LambdaQueue(
        lambda_name=LAMBDA, priority=duly.Priority.NORMAL, ready=duly.TaskCount(live, estimated), scheduled=NONE,
        backing_off=NONE, waiting=NONE, enqueued=NONE, claimed=NONE, processing=NONE, oldest_ready_at=None,
        next_due_at=None, oldest_claim_at=None, hosts=0, recently_scheduled=duly.TaskCount(scheduled),
        counted_at=NOW + timedelta(seconds=at),
    )  # fmt: skip


def test_what_was_scheduled_and_did_not_stay_has_ended():
    meter = RateMeter()
    first = a_queue(0, live=100, scheduled=50)
    before = meter.of(first)
    meter.note([first])

    after = meter.of(a_queue(10, live=120, scheduled=50))

    assert before == (5.0, None, False)
    assert after == (5.0, 3.0, False)


def test_rates_are_of_the_last_ten_seconds_and_estimates_say_so():
    meter = RateMeter()
    for at in range(0, 40, 2):
        meter.note([a_queue(at, live=1_000 - 10 * at, scheduled=0)])

    assert meter.of(a_queue(40, live=600, scheduled=0)) == (0.0, 10.0, False)
    assert meter.of(a_queue(40, live=600, scheduled=0, estimated=True)).is_estimated


async def test_one_picture_shows_what_waits_and_runs_and_how_fast_it_comes(run_duly, task_states):
    for _ in range(5):
        await task_states.new()

    lines = (await run_duly("top", "--once", "--interval", "200ms")).stdout.splitlines()
    told = json.loads((await run_duly("top", "--once", "--interval", "200ms", "--json")).stdout)

    assert lines[0].startswith("hosts: 0 alive")
    assert lines[2].split() == [
        "PRIORITY", "READY", "FOR", "IN/s", "OUT/s", "HELD", "WAITING", "BACKING", "OFF", "SCHEDULED", "HOSTS", "LAMBDA",
    ]  # fmt: skip
    cells = lines[3].split()
    assert (cells[0], cells[1], cells[3], cells[-1]) == ("normal", "5", "0.5", LAMBDA)
    assert told["hosts"]["alive"] == 0
    assert told["queues"][0]["ready"]["count"] == 5
    assert told["queues"][0]["scheduled_per_second"] == 0.5


async def test_gates_in_force_are_named_because_what_they_hold_counts_as_due(client, run_duly, task_states):
    await task_states.new()
    await client.put_gate("sale", duly.GateKind.PAUSE, LAMBDA)

    lines = (await run_duly("top", "--once", "--interval", "200ms")).stdout.splitlines()
    told = json.loads((await run_duly("top", "--once", "--interval", "200ms", "--json")).stdout)

    assert lines[1] == f"gates in force (duly gates list): sale (pause {LAMBDA})"
    assert told["gates"] == ["sale"]


async def test_on_a_terminal_pictures_replace_each_other_until_it_is_interrupted(frontend, task_states):
    await task_states.new()
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "duly_cli", "top", "--interval", "200ms",
        stdout=terminal,
        env=environment | {"DULY_ADDRESS": frontend.address},
    )  # fmt: skip
    os.close(terminal)
    shown = b""
    async with asyncio.timeout(50):
        while shown.count(b"\x1b[H") < 2 or LAMBDA.encode() not in shown:
            shown += await asyncio.to_thread(os.read, main, 65_536)
        process.send_signal(2)
        while b"\x1b[?1049l" not in shown:
            shown += await asyncio.to_thread(os.read, main, 65_536)
        code = await process.wait()
    os.close(main)

    assert code == 130
    text = shown.decode()
    assert text.startswith("\x1b[?1049h")
    assert all(len(line.split("\x1b")[0]) <= 80 for line in text.split("\n"))


def test_names_that_differ_at_their_end_stay_apart() -> None:
    names = [f"a-namespace-with-a-long-name/department.invoices.yearly.{end}" for end in ("mail", "print")]
    table = [("PRIORITY", "LAMBDA"), *(("normal", name) for name in names)]

    (_, *rows) = _fitted(table, 40)

    assert all(len("  ".join(row)) <= 40 for row in rows)
    assert [row[-1][-4:] for row in rows] == ["mail", "rint"]
    assert all(row[-1].startswith("a-name") for row in rows)
