"""The failover grace period: after a change of Postgres's server or clock no claim is voided, and everything else goes on."""

from datetime import UTC, datetime, timedelta

import psycopg
import pytest
import structlog

from duly_core.config.timing import Timing
from duly_core.errors import StoreUnavailableError
from duly_core.postgres.server_identity import ServerCheck
from duly_core.process.clock import since_boot_ns
from duly_core.tasks import polling
from duly_store_consumer import events
from duly_store_consumer.consumer import Consumer
from duly_store_consumer.reclaim_guard import ReclaimGuard
from duly_store_consumer.settings import StoreConsumerSettings
from tests.fixtures.task_states import HEARTBEAT_TIMEOUT, LAMBDA, SECOND

TIMING = Timing(profile="embedded")
LEASE = TIMING.heartbeat_timeout
REFERENCES_ARE_LOST_SOON = (
    "update task_assoc set next_trigger_at = duly_now() + interval '1 s' where status = 'enqueued'"
)
ANOTHER_SERVER = "update store_epoch set server = 'the one before'"


STANDS_STILL = """
create or replace function duly_now() returns timestamptz language sql volatile parallel safe
    as 'select (select stands_at + ahead from test_clock)'
"""


class Host:
    """A host's clock since boot, that a test moves together with the store's."""

    def __init__(self):
        self.began_at = since_boot_ns()
        self.ahead = timedelta()
        self.slow = 0
        self.calls = 0

    def __call__(self):
        self.calls += 1
        slow = 0 if self.calls % 2 else self.slow  # asked before and after each answer
        return self.began_at + int(self.ahead / timedelta(microseconds=1)) * 1000 + slow


@pytest.fixture
def clock(clock, dsn):
    """The store's clock, which stands still until it is moved: what a busy machine takes is no part of a lease."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("alter table test_clock add column stands_at timestamptz not null default now()")
        connection.execute(STANDS_STILL)
    return clock


@pytest.fixture
def host(clock):
    return Host()


@pytest.fixture
def make_consumer(store, sender, host):
    def make():
        return Consumer(store, sender, StoreConsumerSettings(), ReclaimGuard(TIMING, host))

    return make


@pytest.fixture
def passes(clock, host):
    """Time passes, for the store and for the host."""

    async def tick(duration):
        host.ahead += duration
        await clock.tick(duration)

    return tick


@pytest.fixture
def execute(dsn):
    def run(statement):
        with psycopg.connect(dsn, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else None

    return run


async def turn(*consumers):
    for consumer in consumers:
        consumer._timeouts._handled_at = float("-inf")
        await consumer.run_once()


async def test_on_the_same_server_silent_claims_are_taken_up_at_once(
    task_states, passes, make_consumer, processing_task
):
    consumer = make_consumer()
    await turn(consumer)
    await passes(HEARTBEAT_TIMEOUT + SECOND)

    await turn(consumer)

    assert await task_states.status(processing_task.task_id) == "enqueued"


async def test_on_another_server_silent_claims_are_left_alone_for_one_lease(
    task_states, passes, make_consumer, execute, processing_task
):
    seasoned = make_consumer()
    await turn(seasoned)
    await passes(HEARTBEAT_TIMEOUT + SECOND)
    execute(ANOTHER_SERVER)

    await turn(make_consumer(), seasoned)
    await passes(LEASE - SECOND)
    await turn(seasoned, make_consumer())
    assert await task_states.status(processing_task.task_id) == "processing"

    await passes(2 * SECOND)
    await turn(make_consumer())
    assert await task_states.status(processing_task.task_id) == "enqueued"


async def test_whoever_asked_for_a_cancel_or_is_quarantined_waits_as_well(
    task_states, passes, make_consumer, execute
):
    await task_states.register(max_crashes=1)
    last = await task_states.processing()
    await task_states.register(max_crashes=3)
    cancelled = await task_states.processing()
    execute(
        "update task_assoc set cancel_requested = (task_id = (select max(task_id::text)::uuid from task_assoc))"
    )
    await task_states.register(max_crashes=1)
    execute(ANOTHER_SERVER)
    consumer = make_consumer()
    await passes(HEARTBEAT_TIMEOUT + SECOND)

    await turn(consumer)
    assert [await task_states.status(task.task_id) for task in (last, cancelled)] == ["processing"] * 2

    await passes(LEASE)
    await turn(consumer)
    assert [await task_states.status(task.task_id) for task in (last, cancelled)] == [
        "fatal_failure",
        "cancelled",
    ]


@pytest.mark.parametrize("ahead", [timedelta(hours=1), TIMING.clock_step + SECOND])
async def test_a_forward_step_of_the_clock_voids_no_claim_for_any_consumer(
    task_states, clock, passes, make_consumer, processing_task, ahead
):
    witness = make_consumer()
    await turn(witness)
    await passes(HEARTBEAT_TIMEOUT - SECOND)
    await turn(witness)
    await clock.tick(ahead)

    await turn(witness)
    await turn(make_consumer())
    await passes(LEASE - SECOND)
    await turn(witness, make_consumer())
    assert await task_states.status(processing_task.task_id) == "processing"

    await passes(2 * SECOND)
    await turn(make_consumer())
    assert await task_states.status(processing_task.task_id) == "enqueued"


async def test_a_step_that_the_timing_allows_for_is_none(
    task_states, clock, passes, make_consumer, processing_task
):
    consumer = make_consumer()
    await passes(HEARTBEAT_TIMEOUT - SECOND / 2)
    await turn(consumer)
    await clock.tick(TIMING.clock_step * 0.7)

    await turn(consumer)

    assert await task_states.status(processing_task.task_id) == "enqueued"


async def test_a_clock_that_was_set_back_does_not_prolong_the_quiet(
    task_states, clock, passes, make_consumer, execute, processing_task
):
    consumer = make_consumer()
    await passes(HEARTBEAT_TIMEOUT)
    execute(ANOTHER_SERVER)
    await turn(consumer)
    await clock.tick(-timedelta(hours=1))

    await turn(consumer)
    execute("update task_assoc set next_trigger_at = duly_now()")
    await passes(LEASE + SECOND)
    await turn(consumer)

    assert await task_states.status(processing_task.task_id) == "enqueued"


async def test_while_answers_are_too_slow_to_judge_the_clock_by_nothing_is_voided(
    task_states, clock, passes, make_consumer, host, processing_task
):
    consumer = make_consumer()
    await turn(consumer)
    await passes(HEARTBEAT_TIMEOUT + SECOND)

    host.slow = int(TIMING.clock_step / timedelta(microseconds=1)) * 1000
    await clock.tick(TIMING.clock_step + SECOND)
    await turn(consumer)
    assert await task_states.status(processing_task.task_id) == "processing"

    host.slow = 0
    await clock.tick(-TIMING.clock_step - SECOND)
    await turn(consumer)
    assert await task_states.status(processing_task.task_id) == "enqueued"


async def test_a_slow_answer_that_proves_the_clock_right_all_the_same_keeps_nothing_waiting(
    task_states, passes, make_consumer, host, processing_task
):
    consumer = make_consumer()
    await turn(consumer)
    await passes(HEARTBEAT_TIMEOUT + SECOND)

    host.slow = int(TIMING.clock_step / timedelta(microseconds=1)) * 1000
    await turn(consumer)

    assert await task_states.status(processing_task.task_id) == "enqueued"


async def test_what_is_due_is_enqueued_though_silences_cannot_be_looked_at(
    task_states, make_consumer, monkeypatch
):
    task = await task_states.new()

    async def fails(*_):
        raise StoreUnavailableError("just now")

    monkeypatch.setattr(polling, "next_timeout", fails)
    with pytest.raises(StoreUnavailableError, match="just now"):
        await turn(make_consumer())

    assert await task_states.status(task.task_id) == "enqueued"


async def test_a_postgres_that_does_not_tell_its_timeline_is_known_by_its_start(execute, dsn):
    execute(
        "create function public.pg_current_wal_lsn() returns pg_lsn language plpgsql as "
        "'begin raise feature_not_supported; end'"
    )
    path = "set search_path = public, pg_catalog"

    assert execute("select duly_server() like '-/%'") == [(False,)]
    with psycopg.connect(dsn) as connection:
        connection.execute(path)
        assert connection.execute("select duly_server() like '-/%'").fetchall() == [(True,)]


async def test_meanwhile_what_is_due_lost_or_expired_is_seen_to(
    task_states, passes, make_consumer, execute, memory_queue
):
    created_at = (await task_states.row((await task_states.new(delay=timedelta(days=1))).task_id))[
        "created_at"
    ]
    expiring = await task_states.new(delay=timedelta(hours=1), expires_at=created_at + 5 * SECOND)
    lost, silent = await task_states.enqueued(), await task_states.processing()
    execute(REFERENCES_ARE_LOST_SOON)
    execute(ANOTHER_SERVER)
    consumer = make_consumer()
    await turn(consumer)
    await passes(HEARTBEAT_TIMEOUT - SECOND)
    due = await task_states.new()

    await turn(consumer)

    assert [await task_states.status(task.task_id) for task in (due, silent)] == ["enqueued", "processing"]
    assert await task_states.status(expiring.task_id) == "fatal_failure"
    assert memory_queue.queues.references(LAMBDA).keys() == {due.task_id, lost.task_id}


async def test_a_row_that_somebody_removed_is_written_anew_and_counts_as_a_change(
    task_states, passes, make_consumer, execute, processing_task
):
    execute("truncate store_epoch")
    consumer = make_consumer()
    await passes(HEARTBEAT_TIMEOUT + SECOND)

    await turn(consumer, consumer)

    assert await task_states.status(processing_task.task_id) == "processing"
    assert execute("select changed_at is not null from store_epoch") == [(True,)]


async def test_a_role_without_privileges_of_its_own_may_look(dsn, store, execute):
    """What the look asks of Postgres must be open to whoever may write the table."""
    execute("create role duly_plain_looker")
    try:
        execute("grant select, insert, update on store_epoch to duly_plain_looker")
        execute("grant execute on function duly_now, duly_server to duly_plain_looker")
        async with store.connection() as connection:
            await connection.execute("set role duly_plain_looker")
            try:
                assert await ReclaimGuard(TIMING).left(connection) == timedelta()
            finally:
                await connection.execute("reset role")
    finally:
        execute("drop owned by duly_plain_looker")
        execute("drop role duly_plain_looker")


NEXT, EARLIER = "00000002/20.5", "00000001/10.5"


@pytest.mark.parametrize(
    ("before", "now", "expected", "level", "event"),
    [
        (EARLIER, "00000001/20.5", True, "info", "Postgres was restarted before this process, as usual"),
        (EARLIER, "00000001/20.5", False, "warning", "Postgres was restarted"),
        (EARLIER, NEXT, True, "warning", "Postgres server changed"),
        (EARLIER, NEXT, False, "warning", "Postgres server changed"),
        ("-/10.5", "-/20.5", True, "info", "Postgres server changed"),
        ("-/10.5", "-/20.5", False, "warning", "Postgres server changed"),
        (None, EARLIER, True, "info", "Postgres server changed"),
        (EARLIER, EARLIER, False, "warning", "Postgres clock was set back"),
    ],
)
def test_a_restart_of_postgres_and_duly_together_is_no_warning_and_a_failover_always_is(
    before: str | None, now: str, expected: bool, level: str, event: str
) -> None:
    seen = ServerCheck(datetime(2026, 11, 28, tzinfo=UTC), now, before, timedelta(), written=True)
    with structlog.testing.capture_logs() as logged:
        events.server_changed(seen, expected=expected)
    assert [(each["log_level"], each["event"]) for each in logged] == [(level, event)]
