"""New dead letters are counted once each, by lambda and kind, whoever ended their tasks."""

from datetime import UTC, datetime, timedelta

from prometheus_client import REGISTRY

from duly_core.tasks import dead_letter_counts, polling
from duly_core.tasks.dead_letter_counts import count_new
from duly_store_consumer import events
from duly_store_consumer.counting.dead_letter_watch import DeadLetterWatch
from duly_wire.enums import FailureKind
from tests.fixtures.task_states import LAMBDA, SECOND


async def test_dead_letters_are_counted_once_by_lambda_and_kind(store, task_states, clock, dead_letter):
    await dead_letter(FailureKind.CALLBACK)
    await clock.tick(30 * SECOND)
    first = await count_new(store, None)
    await dead_letter(FailureKind.CALLBACK)
    await dead_letter(FailureKind.MAX_RUNTIME)
    await task_states.new(expires_at=datetime.now(UTC) + 35 * SECOND)
    await clock.tick(10 * SECOND)
    await polling.handle_timeouts(store, None, timedelta(seconds=60), 100)

    early = await count_new(store, first.until)
    await clock.tick(20 * SECOND)
    later = await count_new(store, early.until)
    again = await count_new(store, later.until)

    assert not first.by_kind
    assert (early.by_kind + later.by_kind) == {
        (LAMBDA, FailureKind.CALLBACK): 1,
        (LAMBDA, FailureKind.MAX_RUNTIME): 1,
        (LAMBDA, FailureKind.EXPIRED): 1,
    }
    assert not again.by_kind
    assert again.newest_at == later.newest_at


async def test_more_than_one_statement_reads_are_counted_by_the_next(store, clock, dead_letter, monkeypatch):
    monkeypatch.setattr(dead_letter_counts, "_MOST", 2)
    first = await count_new(store, None)
    await clock.tick(1 * SECOND)
    for _ in range(3):
        await dead_letter()
    await clock.tick(30 * SECOND)

    second = await count_new(store, first.until)
    third = await count_new(store, second.until)

    assert [second.by_kind.total(), third.by_kind.total()] == [2, 1]


async def test_the_metrics_tell_the_kind_and_when_the_newest_ended(store, clock, dead_letter):
    watch = DeadLetterWatch(store)
    await watch.run_once()
    none_yet = REGISTRY.get_sample_value("duly_newest_dead_letter_timestamp_seconds")
    await clock.tick(1 * SECOND)
    ended_after = datetime.now(UTC).timestamp()
    await dead_letter(FailureKind.BAD_PAYLOAD)
    await clock.tick(30 * SECOND)

    await watch.run_once()

    labels = {"lambda": LAMBDA, "kind": "bad_payload"}
    assert none_yet == 0
    assert REGISTRY.get_sample_value("duly_dead_letters_total", labels) == 1
    assert REGISTRY.get_sample_value("duly_newest_dead_letter_timestamp_seconds") >= ended_after


async def test_a_kind_that_only_a_newer_release_knows_is_counted_as_unknown(store, clock, dead_letter):
    first = await count_new(store, None)
    await dead_letter(FailureKind.CALLBACK)
    async with store.connection() as connection:
        await connection.execute("update task set failure_kind = 99 where failure_kind is not null")
    await clock.tick(30 * SECOND)

    found = await count_new(store, first.until)
    events.dead_letters(found.by_kind, found.newest_at)

    assert found.by_kind == {(LAMBDA, None): 1}
    assert REGISTRY.get_sample_value("duly_dead_letters_total", {"lambda": LAMBDA, "kind": "unknown"}) == 1
