"""`duly events watch`: a line for each event, and the position to go on from."""

import asyncio
import json

from duly_cli.output.safe_text import printable
from duly_core.watches.statements import WATCHES
from tests.fixtures.service_processes import poll
from tests.fixtures.task_states import LAMBDA


async def somebody_watches(store):
    return (await store.run(WATCHES["is_watched"], {}))[0][0]


async def test_it_follows_and_goes_on_from_a_position(client, store, task_states, run_duly):
    first = asyncio.create_task(run_duly("events", "watch", "--lambda", LAMBDA, "--count", "1", "--json"))
    await poll(lambda: somebody_watches(store))
    ids = [(await client.schedule(LAMBDA)).task_id for _ in range(2)]
    await task_states.end_all_that_may_run()
    done = await first

    said = json.loads(done.stdout)
    again = await run_duly("events", "watch", "--lambda", LAMBDA, "--count", "1", "--after", said["position"])

    assert done.exit_code == again.exit_code == 0
    assert (said["kind"], said["status"], said["lambda"]) == ("task_ended", "success", LAMBDA)
    assert f"[go on with --after {said['position']}]" in done.stderr
    (line,) = again.stdout.splitlines()
    assert "task success" in line
    assert {said["task_id"], line.split("task success")[1].split()[0]} == set(ids)
    assert printable(line) == line


async def test_a_position_that_is_none_is_an_error_with_its_reason(run_duly):
    done = await run_duly("events", "watch", "--after", "x")

    assert done.exit_code == 1
    assert "after: is no position of a watch" in done.stderr
