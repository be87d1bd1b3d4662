"""What a failure that is not a callback's own does to a session: an expiry, a failure of another task, a redrive."""

from datetime import timedelta

from duly_core.lambdas.session_names import SessionId
from duly_core.sessions import store as sessions
from duly_core.tasks import dead_letters, polling, schedule
from duly_core.tasks.task import NewTask, Session
from duly_core.upkeep.retention import Retention
from duly_wire.enums import FailureKind, Outcome, SessionOrder, SessionPolicy
from duly_wire.ids import new_task_id
from tests.fixtures.task_states import ENQUEUE_TIMEOUT, LAMBDA, SECOND

KEY = "account-7"
SESSION = SessionId("", KEY)
MINUTE = timedelta(minutes=1)
BLOCK = Session(KEY, policy=SessionPolicy.BLOCK)


async def end_what_timed_out(task_states):
    return await polling.handle_timeouts(task_states.store, None, ENQUEUE_TIMEOUT, 100)


async def state_of(task_states):
    return (await sessions.get_sessions(task_states.store, [SESSION], 10)).get(SESSION)


async def expiring_in(task_states, clock, **fields):
    """Schedule a task that expires a minute from now, by the store's clock."""
    async with task_states.store.connection() as connection:
        cursor = await connection.execute("select duly_now() + interval '1 minute'")
        row = await cursor.fetchone()
    return await task_states.new(expires_at=row[0], **fields)


def a_follower():
    return NewTask(new_task_id().bytes, LAMBDA, b"{}", session=Session(KEY))


async def test_a_head_that_expires_blocks_its_session_if_it_says_so(task_states, clock):
    await task_states.register()
    head = await expiring_in(task_states, clock, session=BLOCK)
    await task_states.new(session=Session(KEY))
    await clock.tick(MINUTE + SECOND)

    await end_what_timed_out(task_states)

    state = await state_of(task_states)
    assert (state.head, state.blocked_by, state.length) == (None, head.task_id, 1)


async def test_a_task_that_expires_while_it_waits_blocks_nothing(task_states, clock):
    await task_states.register()
    head = await task_states.new(session=Session(KEY))
    late = await expiring_in(task_states, clock, session=BLOCK)
    await clock.tick(MINUTE + SECOND)

    found = await end_what_timed_out(task_states)

    state = await state_of(task_states)
    assert (state.head, state.blocked_by, state.length) == (head.task_id, None, 1)
    assert found.ended == 1
    assert (await task_states.row(late.task_id))["failure_kind"] == FailureKind.EXPIRED


async def test_a_task_that_fails_with_its_session_blocks_nothing(task_states):
    await task_states.register()
    await task_states.new(session=Session(KEY, policy=SessionPolicy.FAIL_REST))
    followers = [await task_states.new(session=BLOCK) for _ in range(2)]
    await task_states.end_all_that_may_run(Outcome.FATAL_FAILURE)

    await end_what_timed_out(task_states)

    assert await state_of(task_states) is None
    for follower in followers:
        assert (await task_states.row(follower.task_id))["failure_kind"] == FailureKind.SESSION_FAILED


async def test_a_redriven_task_of_a_session_by_due_time_takes_the_place_of_its_new_time(task_states, clock):
    by_due = Session(KEY, SessionOrder.DUE)
    await task_states.register()
    first = await task_states.new(session=by_due)
    await task_states.end_all_that_may_run(Outcome.FATAL_FAILURE)
    late = await task_states.new(session=by_due, delay=MINUTE)

    await dead_letters.redrive(task_states.store, [first.task_id])

    state = await state_of(task_states)
    assert (state.head, state.waiting) == (first.task_id, (late.task_id,))


async def test_many_followers_fail_in_steps_and_a_later_task_runs(task_states):
    await task_states.register()
    await task_states.new(session=Session(KEY, policy=SessionPolicy.FAIL_REST))
    followers = [a_follower() for _ in range(1200)]
    await schedule.schedule(task_states.store, followers)
    await task_states.end_all_that_may_run(Outcome.FATAL_FAILURE)
    later = await task_states.new(session=Session(KEY))
    assert (await state_of(task_states)).failing == 1000

    ended = 0
    while (state := await state_of(task_states)).failing:
        ended += (await end_what_timed_out(task_states)).ended

    assert ended == 1200
    assert (state.head, state.length, state.blocked_by) == (later.task_id, 1, None)


async def test_a_session_goes_on_when_the_task_that_blocks_it_is_removed(task_states):
    await task_states.register()
    blocker = await task_states.new(session=BLOCK)
    follower = await task_states.new(session=Session(KEY))
    await task_states.end_all_that_may_run(Outcome.FATAL_FAILURE)
    month = timedelta(days=30)
    retention = Retention(task_states.store, month, month, timedelta(days=1))
    await retention.run_once()
    assert (await state_of(task_states)).blocked_by == blocker.task_id

    async with task_states.store.connection() as connection:
        await connection.execute("delete from dead_letter")
    await retention.run_once()

    assert (await state_of(task_states)).head == follower.task_id
