"""Gates in an Executor: what has not started goes back when a heartbeat says so, what runs goes on."""

from duly_wire.v1 import hsc_pb2
from tests.fixtures.host import Host, value_of

GATED = hsc_pb2.HEARTBEAT_VERDICT_GATED


async def test_what_waits_for_a_slot_goes_back_uncharged_and_what_runs_goes_on(host: Host) -> None:
    running, waiting = host.waiting(), host.waiting()
    await host.ready("--slots", 1, DULY_EXECUTOR_RECALL_AFTER="1h")
    host.hand_out(running, waiting)
    await host.journal.started(running)

    for task in (running, waiting):
        host.hsc.verdicts[task.claim.task_id] = GATED
    await host.hsc.release_of(waiting)
    for _ in range(2):
        await host.hsc.beat_of(running)
    host.journal.let_go()

    assert value_of(await host.hsc.end_of(running)) == "waited"
    assert running.claim not in host.hsc.releases
    assert not host.journal.has("started", waiting)


async def test_an_executor_works_on_after_it_handed_back_what_a_gate_holds(host: Host) -> None:
    running, waiting, next_ = host.waiting(), host.waiting(), host.waiting()
    await host.ready("--slots", 1, DULY_EXECUTOR_RECALL_AFTER="1h")
    host.hand_out(running, waiting)
    await host.journal.started(running)
    host.hsc.verdicts[waiting.claim.task_id] = GATED
    await host.hsc.release_of(waiting)

    host.journal.let_go()
    await host.hsc.end_of(running)
    host.hand_out(next_)

    assert value_of(await host.hsc.end_of(next_)) == "waited"


async def test_what_waits_in_a_callback_process_goes_back_too(host: Host) -> None:
    """With reserved slots off, an Executor gives its processes tasks ahead of their slots once some have ended."""
    quick = [host.waiting() for _ in range(4)]
    await host.ready("--slots", 1, DULY_EXECUTOR_RECALL_AFTER="1h", DULY_EXECUTOR_PREFETCH_TIME="10s")
    host.journal.let_go()
    for task in quick:  # short tasks stream through: tasks are held ahead
        host.hand_out(task)
        await host.hsc.end_of(task)
    (host.journal.folder / "go").unlink(missing_ok=True)
    running, waiting = host.waiting(), host.waiting()
    host.hand_out(running, waiting)
    host.hsc.verdicts[waiting.claim.task_id] = GATED

    await host.hsc.release_of(waiting)

    assert not host.journal.has("started", waiting)
