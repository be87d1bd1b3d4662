"""`duly get` and `duly wait` of several tasks, against a Frontend that serves."""

import asyncio
import json
from datetime import datetime, timedelta
from uuid import UUID

import pytest

import duly
from duly_cli.output.safe_text import say
from duly_cli.tasks import wait_reasons
from duly_core.results.store import set_results
from duly_core.tasks.task import HeartbeatAnswer, Result
from duly_wire.enums import Outcome
from tests.fixtures.task_states import LAMBDA
from tests.fixtures.waiting import until

UNKNOWN = "0190a8a0-0000-7000-8000-000000000000"


@pytest.fixture
async def task_ids(task_states):
    return [str(UUID(bytes=(await task_states.new(payload=b'{"ok":true}')).task_id)) for _ in range(2)]


async def test_of_several_tasks_those_that_are_there_are_shown_and_the_others_named(run_duly, task_ids):
    first, second = task_ids

    got = await run_duly("get", first, "nonsense", UNKNOWN, second, "--json")

    assert got.exit_code == 1
    assert [json.loads(line)["task_id"] for line in got.stdout.splitlines()] == [first, second]
    bad, gone = got.stderr.splitlines()
    assert bad.startswith("duly: 'nonsense': not a task id: write a UUID")
    assert gone.startswith(f"duly: there is no task {UNKNOWN}")


async def test_tasks_are_set_apart_by_a_line_and_their_payloads_are_json(run_duly, task_ids):
    got = await run_duly("get", *task_ids)

    assert got.exit_code == 0
    assert got.stdout.count('payload  {"ok": true}\n') == 2
    assert got.stdout.splitlines().count("") == 1


@pytest.mark.parametrize(
    ("task_id", "said"), [("nonsense", "'nonsense': not a task id"), (UNKNOWN, f"there is no task {UNKNOWN}")]
)
async def test_a_wait_names_the_unknown_task_though_the_other_runs_on(run_duly, task_ids, task_id, said):
    waited = await asyncio.wait_for(run_duly("wait", task_ids[0], task_id), 15)

    assert waited.exit_code == 1
    assert said in waited.stderr


async def test_a_wait_tells_how_a_task_ended_by_its_text_and_its_exit_code(run_duly, task_states):
    done, failed = [await task_states.claimed() for _ in range(2)]
    waiting = str(UUID(bytes=(await task_states.new()).task_id))
    await set_results(
        task_states.store, [Result(done.task_id, done.token, Outcome.SUCCESS, result=b'"hello"')]
    )
    await task_states.fail(failed, "never again")

    ids = (str(UUID(bytes=done.task_id)), str(UUID(bytes=failed.task_id)), waiting)
    told = [await run_duly("wait", each, "--timeout", "50ms") for each in ids]

    assert [each.exit_code for each in told] == [0, 1, 1]
    assert "hello" in told[0].stdout
    assert "never again" in told[1].stdout
    assert waiting in told[2].stderr


async def test_a_cancel_says_what_became_of_each_task_and_fails_if_one_had_ended(run_duly, task_states):
    task = await task_states.claimed()
    await set_results(task_states.store, [Result(task.task_id, task.token, Outcome.SUCCESS)])
    done, waiting = (str(UUID(bytes=each.task_id)) for each in (task, await task_states.new()))

    cancelled = await run_duly("cancel", waiting, done)

    assert cancelled.exit_code == 1
    assert f"{waiting}: cancelled" in cancelled.stdout
    assert done in cancelled.stderr


async def test_a_cancel_names_each_once(run_duly):
    cancelled = await run_duly("cancel", "nonsense")

    assert cancelled.stderr.startswith("nonsense: not a task id")


async def test_a_kill_says_what_becomes_of_a_callback_and_needs_ids(run_duly, task_states):
    running = await task_states.processing()
    task_id = str(UUID(bytes=running.task_id))

    killed = await run_duly("cancel", "--kill", task_id)
    refused = await run_duly("cancel", "--kill", "--lambda", LAMBDA, "--yes")

    assert killed.stdout == f"{task_id}: is processing; its callback is killed if it does not stop at once\n"
    assert await task_states.heartbeat(running) is HeartbeatAnswer.KILL_REQUESTED
    assert refused.exit_code == 2
    assert "--kill needs task ids" in refused.stderr


async def test_an_empty_list_says_so_and_how_to_change_that(run_duly, task_states):
    assert "duly schedule LAMBDA PAYLOAD" in (await run_duly("list")).stdout
    assert (await run_duly("list", "--status", "new")).stdout.strip() == "no tasks match"


async def test_a_task_is_scheduled_with_every_option_of_the_sdk(run_duly, task_states):
    await task_states.register()
    options = ("--priority", "high", "--collection", "spring", "--delay", "1h", "--expires-at", "2h")

    scheduled = await run_duly(
        "schedule", LAMBDA, "5", *options, "--idempotency-key", "once", "--timeout", "9s"
    )
    again = await run_duly("schedule", LAMBDA, "5", *options[:4], "--key", "once")

    task = json.loads((await run_duly("get", scheduled.stdout.strip(), "--json")).stdout)
    assert again.stdout == scheduled.stdout
    assert (task["priority"], task["collection"], task["payload"]) == ("high", "spring", 5)
    ahead = datetime.fromisoformat(task["expires_at"]) - datetime.fromisoformat(task["created_at"])
    assert timedelta(minutes=119) < ahead < timedelta(minutes=121)


async def test_each_line_is_a_task(run_duly, task_states):
    await task_states.register()

    scheduled = await run_duly("schedule", LAMBDA, "1\n\n2\n", "--lines")
    raw = await run_duly("schedule", LAMBDA, "bytes", "--raw")

    shown = await run_duly("get", *scheduled.stdout.split(), raw.stdout.strip(), "--json")
    payloads = [json.loads(line)["payload"] for line in shown.stdout.splitlines()]
    assert payloads == [1, 2, {"base64": "Ynl0ZXM="}]


async def test_of_lines_one_of_which_is_refused_the_others_are_scheduled_and_told(run_duly, task_states):
    await task_states.register(payload_limit=10)

    scheduled = await run_duly("schedule", LAMBDA, f'1\n"{"x" * 20}"\n3', "--lines")

    assert scheduled.exit_code == 1
    assert len(scheduled.stdout.split()) == 2
    assert "1 of 3 tasks were not scheduled" in scheduled.stderr


async def test_a_key_is_one_tasks(run_duly):
    refused = await run_duly("schedule", LAMBDA, "1\n2", "--lines", "--key", "once")

    assert refused.exit_code == 2


async def test_a_list_is_of_the_priorities_that_are_asked_for(run_duly, task_states):
    await task_states.register()
    urgent, low = [
        (await run_duly("schedule", LAMBDA, "--priority", name)).stdout.strip() for name in ("urgent", "low")
    ]

    listed = await run_duly("list", "--priority", "urgent", "--priority", "HIGH", "--json")

    assert [json.loads(line)["task_id"] for line in listed.stdout.splitlines()] == [urgent]
    assert low not in listed.stdout


@pytest.fixture
def said(monkeypatch):
    """What a command that waits has said on stderr so far; it asks for a reason 20 times a second."""
    lines = []

    def note(text, *, err=False):
        lines.append(text)
        say(text, err=err)

    monkeypatch.setattr(wait_reasons, "say", note)
    monkeypatch.setattr(wait_reasons, "ASK_EVERY", timedelta(milliseconds=50))
    return lines


async def test_a_wait_says_what_the_task_waits_for_and_says_it_again_when_that_changes(
    run_duly, client, task_states, said
):
    await client.put_gate("stop", duly.GateKind.PAUSE, LAMBDA, owner="ann", reason="a bad deploy")

    waiting = asyncio.create_task(run_duly("schedule", LAMBDA, "1", "--wait"))
    await until(lambda: len(said) == 1)
    (task,) = [each async for each in client.list()]
    await client.put_gate("sale", duly.GateKind.PAUSE, LAMBDA, owner="bob", reason="too much mail")
    await client.delete_gate("stop")
    await until(lambda: len(said) == 2)
    await client.cancel(task)
    ended = await asyncio.wait_for(waiting, 15)

    stopped, still_stopped = said
    assert stopped.startswith(f"duly: {task.task_id}: the gate 'stop' holds it back")
    assert stopped.endswith("`duly gates delete stop`")
    assert still_stopped.startswith(f"duly: {task.task_id}: the gate 'sale' holds it back")
    assert ended.exit_code == 1
    assert ended.stderr.splitlines() == "\n".join(said).splitlines()
    assert ended.stdout.startswith(task.task_id)


async def test_of_several_tasks_the_wait_explains_the_first_that_has_not_ended(
    run_duly, client, task_ids, said
):
    first, second = task_ids

    waiting = asyncio.create_task(run_duly("wait", first, second))
    await until(lambda: said)
    await client.cancel(first)
    await until(lambda: len(said) == 2)
    await client.cancel(second)
    await asyncio.wait_for(waiting, 15)

    assert [each.split(": ")[1] for each in said] == task_ids


async def test_a_task_that_cannot_be_explained_is_waited_for_all_the_same(
    run_duly, client, task_ids, said, monkeypatch
):
    def refuse(*_, **__):
        raise duly.PermissionDeniedError("you may not read it")

    monkeypatch.setattr(duly.Client, "explain", refuse)

    waiting = asyncio.create_task(run_duly("wait", task_ids[0]))
    await until(lambda: said)
    await client.cancel(task_ids[0])
    ended = await asyncio.wait_for(waiting, 15)

    assert said == ["duly: no reason known: you may not read it"]
    assert task_ids[0] in ended.stdout


async def test_a_wait_for_a_graph_explains_a_node_that_waits_for_no_other(
    run_duly, client, task_states, said
):
    graph = duly.NewGraph("order")
    ship = graph.task(LAMBDA, label="ship")
    graph.task(LAMBDA, label="thank", after=ship)
    scheduled = await client.schedule_graph(graph)

    waiting = asyncio.create_task(run_duly("graph", "wait", scheduled.graph_id))
    await until(lambda: said)
    await client.cancel_graph(scheduled)
    await asyncio.wait_for(waiting, 15)

    assert said[0].startswith(f"duly: {scheduled.task_ids['ship']}: ")
