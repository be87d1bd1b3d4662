"""An Executor whose callbacks take batches: what shares a call, and what becomes of each task of it."""

import signal
from datetime import timedelta
from typing import Any

from duly_wire.v1 import hsc_pb2, task_pb2
from tests.fixtures.host import Command, Host, claimed, gone, value_of

APP = "tests.fixtures.batch_callbacks:app"


async def start(host: Host, **environment: str) -> Command:
    executor = host.start(application=APP, **environment)
    await host.controller.until(lambda: host.controller.asked)
    return executor


def numbered(host: Host, count: int, name: str = "batch.sizes", **claim: Any) -> list[hsc_pb2.ClaimedTask]:
    return [claimed(name, {**host.journal.payload(), "n": number}, **claim) for number in range(count)]


async def test_a_call_takes_as_many_tasks_as_came_within_the_wait_and_no_more_than_the_size(
    host: Host,
) -> None:
    await start(host)
    tasks = numbered(host, 7)

    host.hand_out(*tasks)

    ends = [value_of(await host.hsc.end_of(task)) for task in tasks]
    assert ends == [[5, 0], [5, 1], [5, 2], [5, 3], [5, 4], [2, 5], [2, 6]]


async def test_an_executor_asks_for_as_many_tasks_as_its_free_slots_take_in_batches(host: Host) -> None:
    await start(host, DULY_EXECUTOR_SLOTS="2")

    await host.controller.until(lambda: len({tuple(each.lambdas) for each in host.controller.asked}) == 6)

    asked = {tuple(each.lambdas): each for each in host.controller.asked}
    assert {names: each.max_tasks for names, each in asked.items()} == {
        (): 2,
        ("batch.patient",): 200,
        ("batch.async",): 10,
        ("batch.brief",): 6,
        ("batch.sizes",): 10,
        ("batch.wait",): 6,
    }
    assert set(asked[()].except_lambdas) == {
        "batch.async",
        "batch.brief",
        "batch.patient",
        "batch.sizes",
        "batch.wait",
    }


async def test_each_task_of_a_batch_ends_by_itself(host: Host) -> None:
    await start(host)
    good, bad, unread = numbered(host, 3)
    bad.payload = b'{"n": 1, "fail": true}'
    unread.payload = b"7"

    host.hand_out(good, bad, unread)

    assert value_of(await host.hsc.end_of(good)) == [2, 0]
    assert (await host.hsc.end_of(bad)).failure_message == "told to"
    assert (await host.hsc.end_of(unread)).failure_kind == task_pb2.FAILURE_KIND_BAD_PAYLOAD


async def test_an_async_callback_takes_a_batch_and_without_a_wait_starts_at_once(host: Host) -> None:
    await start(host)
    tasks = [claimed("batch.async", number) for number in range(3)]

    host.hand_out(*tasks)

    assert [value_of(await host.hsc.end_of(task)) for task in tasks] == [0, 2, 4]


async def test_a_batch_takes_one_slot_and_the_others_run_other_tasks(host: Host) -> None:
    await start(host, DULY_EXECUTOR_SLOTS="2")
    batch = numbered(host, 3, "batch.wait")
    host.hand_out(*batch)
    await host.journal.started(*batch)

    echo = claimed("test.echo", "beside")
    host.hand_out(echo)

    assert value_of(await host.hsc.end_of(echo)) == "beside"
    await host.hsc.beat_of(*batch)
    host.journal.let_go()
    assert [value_of(await host.hsc.end_of(task)) for task in batch] == ["waited"] * 3


async def test_a_process_that_dies_crashes_each_task_of_its_batch_and_each_runs_alone_then(
    host: Host,
) -> None:
    await start(host)
    tasks = numbered(host, 4)
    tasks[2].payload = b'{"n": 2, "kill": true}'
    host.hand_out(*tasks)
    ends = [await host.hsc.end_of(task) for task in tasks]

    again = numbered(host, 3, crashes=1)
    host.hand_out(*again)

    assert {end.outcome for end in ends} == {hsc_pb2.OUTCOME_CRASHED}
    assert "while it ran 4 tasks" in ends[0].failure_message
    assert [value_of(await host.hsc.end_of(task)) for task in again] == [[1, 0], [1, 1], [1, 2]]


async def test_a_cancel_of_one_task_is_for_that_task_and_the_call_goes_on(host: Host) -> None:
    await start(host)
    batch = numbered(host, 3, "batch.wait")
    host.hand_out(*batch)
    await host.journal.started(*batch)

    host.hsc.verdicts[batch[1].claim.task_id] = hsc_pb2.HEARTBEAT_VERDICT_CANCEL_REQUESTED
    await host.hsc.beat_of(batch[1])
    while not host.journal.has("cancelled", batch[1]):
        await host.hsc.beat_of(batch[1])
    host.journal.let_go()

    assert value_of(await host.hsc.end_of(batch[0])) == "waited"
    assert (await host.hsc.end_of(batch[1])).outcome == hsc_pb2.OUTCOME_SNOOZED
    assert value_of(await host.hsc.end_of(batch[2])) == "waited"


async def test_a_kill_of_one_task_interrupts_the_call_and_the_others_are_charged_nothing(host: Host) -> None:
    await start(host)
    batch = numbered(host, 3, "batch.wait")
    host.hand_out(*batch)
    await host.journal.started(*batch)

    host.hsc.to_kill.add(batch[1].claim.task_id)

    assert (await host.hsc.end_of(batch[1])).outcome == hsc_pb2.OUTCOME_CANCELLED
    for other in (batch[0], batch[2]):
        end = await host.hsc.end_of(other)
        assert (end.outcome, end.retry_after.ToNanoseconds()) == (hsc_pb2.OUTCOME_SNOOZED, 0)


async def test_a_call_that_overruns_fails_each_of_its_tasks(host: Host) -> None:
    await start(host, DULY_EXECUTOR_INTERRUPT_GRACE="100ms")
    batch = numbered(host, 2, "batch.brief", max_runtime=timedelta(milliseconds=300))
    host.hand_out(*batch)
    pid = await host.journal.started(*batch)

    ends = [await host.hsc.end_of(task) for task in batch]

    assert {end.failure_kind for end in ends} == {task_pb2.FAILURE_KIND_MAX_RUNTIME}
    await gone(pid)


async def test_a_hook_that_hangs_is_interrupted_when_max_runtime_is_over_and_the_end_stays(
    host: Host,
) -> None:
    executor = await start(host)
    task = claimed("hook.hangs", {}, max_runtime=timedelta(milliseconds=300))

    host.hand_out(task)

    assert value_of(await host.hsc.end_of(task)) == "done"
    await executor.says("the hook hang raised")


async def test_a_half_full_batch_is_handed_back_unstarted_by_an_executor_that_ends(host: Host) -> None:
    executor = await start(host)
    waiting = numbered(host, 1, "batch.patient")
    host.hand_out(*waiting)
    await host.hsc.beat_of(*waiting)

    executor.kill(signal.SIGTERM)

    await host.hsc.release_of(*waiting)
    assert await executor.exit_code() == 0
    assert not host.journal.lines("started")
    assert waiting[0].claim.task_id not in host.hsc.stopped
