"""What comes of a new feature that is used while older servers run: the task has one end, it ran once, and the caller is told."""

from datetime import timedelta
from uuid import uuid4

import pytest

import duly
from tests.fixtures.forked_process import ROOT
from tests.fixtures.mixed_releases import WORKER, Surroundings, mixed_releases, old_release
from tests.fixtures.waiting import wait_until

pytestmark = [
    pytest.mark.long,  # starts two releases of all services; test_older_side.py has what this release does as the older one
    pytest.mark.timeout(600),
]

OLD, NEW = 0, 1
LATEST = timedelta(seconds=100)
APP = """
from datetime import timedelta
import duly

app = duly.App(owner="early", version="1")


@app.callback("early.hand_over", max_attempts=3)
def hand_over(payload, ctx):
    with open(payload["file"], "a") as runs:
        runs.write(ctx.completion_token() + "\\n")
    return duly.CompleteLater(timeout=timedelta(seconds=payload["seconds"]))
"""


@pytest.fixture
def empty_dsn(postgres_server):
    name = f"duly_test_{uuid4().hex[:12]}"
    postgres_server._create(name, "template1")
    yield postgres_server.dsn_of(name)
    postgres_server.drop(name)


async def test_tasks_that_are_handed_over_too_early_end_once_and_run_once(empty_dsn, tmp_path):
    releases = old_release(tmp_path / "old"), ROOT
    services = ("frontend", "store-consumer", "hsc")

    async def hand_over(name, seconds):
        return await client.schedule(
            "early.hand_over", {"file": str(tmp_path / name), "seconds": seconds}, timeout=LATEST
        )

    def runs(name):
        file = tmp_path / name
        return file.read_text().split() if file.exists() else []

    async def go_to(release, *parts):
        for part in parts:
            mixed.stop(part)
            await mixed.start(part, release)

    with mixed_releases(tmp_path, empty_dsn, releases, services, Surroundings(app=APP)) as mixed:
        mixed.command(OLD, "migrate")
        mixed.command(NEW, "migrate")
        for part in services:
            await mixed.start(part, OLD)
        await mixed.start(WORKER, NEW)
        async with duly.AsyncClient(mixed.frontend) as client:
            refused = await client.wait(await hand_over("refused", 3600), LATEST)
            with pytest.raises(duly.DulyError) as unknown_call:
                await client.complete(runs("refused")[0], timeout=LATEST)

            await go_to(NEW, "frontend", "hsc")
            late = await client.wait(await hand_over("late", 2), LATEST)
            completed = await hand_over("completed", 3600)
            kept = await hand_over("kept", 3600)
            wait_until(lambda: runs("completed") and runs("kept"), LATEST)
            await client.complete(runs("completed")[0], "done", timeout=LATEST)

            await go_to(OLD, "hsc", "frontend")
            with pytest.raises(duly.DulyError):
                await client.get(kept)
            listed = [task.task_id async for task in client.list(statuses=[duly.TaskStatus.WAITING])]
            done = await client.wait(completed, LATEST)

            await go_to(NEW, "frontend", "hsc", "store-consumer")
            await client.complete(runs("kept")[0], "done at last", timeout=LATEST)
            last = await client.wait(kept, LATEST)

    assert (refused.status, refused.failure.kind) == (
        duly.TaskStatus.FATAL_FAILURE,
        duly.FailureKind.BAD_RESULT,
    )
    assert "older than this SDK" in str(unknown_call.value)
    assert (late.status, late.failure.kind) == (duly.TaskStatus.FATAL_FAILURE, duly.FailureKind.EXPIRED)
    assert (done.status, done.result) == (duly.TaskStatus.SUCCESS, "done")
    assert listed == [kept.task_id]
    assert (last.status, last.result) == (duly.TaskStatus.SUCCESS, "done at last")
    assert [len(runs(name)) for name in ("refused", "late", "completed", "kept")] == [1, 1, 1, 1]
