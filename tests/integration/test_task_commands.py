"""`duly get` and `duly wait` of several tasks, against a Frontend that serves."""

import asyncio
import json
from uuid import UUID

import pytest

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
async def test_a_wait_names_the_task_that_there_is_not_though_the_other_runs_on(
    run_duly, task_ids, task_id, said
):
    waited = await asyncio.wait_for(run_duly("wait", task_ids[0], task_id), 15)

    assert waited.exit_code == 1
    assert said in waited.stderr


async def test_a_cancel_names_each_once(run_duly):
    cancelled = await run_duly("cancel", "nonsense")

    assert cancelled.stderr.startswith("nonsense: not a task id")


async def test_an_empty_list_says_so_and_how_to_change_that(run_duly, task_states):
    assert "duly schedule LAMBDA PAYLOAD" in (await run_duly("list")).stdout
    assert (await run_duly("list", "--status", "new")).stdout.strip() == "no tasks match"
