"""The history of a task says when the breaker of its lambda held it back."""

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from duly_core.gates import breaker_history as breaker_moves
from duly_core.gates.breaker_history import Move
from duly_core.gates.breakers import NewBreaker, delete_breakers, judge_breakers
from duly_frontend.explain.breaker_history import with_breaker
from duly_wire.enums import HistoryKind
from duly_wire.v1 import explain_pb2
from tests.fixtures import whole
from tests.fixtures.task_states import LAMBDA

AT = datetime(2026, 11, 23, 3, tzinfo=UTC)
MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)
SCHEDULED, GATED, UNGATED, ENDED, REDRIVEN = (
    explain_pb2.HISTORY_KIND_SCHEDULED,
    explain_pb2.HISTORY_KIND_GATED,
    explain_pb2.HISTORY_KIND_UNGATED,
    explain_pb2.HISTORY_KIND_ENDED,
    explain_pb2.HISTORY_KIND_REDRIVEN,
)


def told(*events, moves):
    history = []
    for kind, second in events:
        history.append(explain_pb2.HistoryEvent(kind=kind))
        history[-1].happened_at.FromDatetime(AT + second * SECOND)
    found = with_breaker(history, [Move(AT + second * SECOND, is_open, "why") for second, is_open in moves])
    return [event.kind for event in found]


@pytest.mark.parametrize(
    ("moves", "kinds"),
    [
        ([], [SCHEDULED, ENDED]),
        ([(5, True), (8, False)], [SCHEDULED, GATED, UNGATED, ENDED]),
        ([(-9, True), (8, False)], [GATED, SCHEDULED, UNGATED, ENDED]),
        ([(-9, True), (-8, False)], [SCHEDULED, ENDED]),
        ([(11, True)], [SCHEDULED, ENDED]),
    ],
)
def test_moves_are_told_if_they_held_the_task_back(moves, kinds):
    assert told((SCHEDULED, 0), (ENDED, 10), moves=moves) == kinds


def test_what_a_breaker_did_while_the_task_was_a_dead_letter_is_told_if_it_holds_the_redriven_task():
    events = [(SCHEDULED, 0), (ENDED, 10), (REDRIVEN, 20), (ENDED, 30)]

    over = told(*events, moves=[(12, True), (14, False)])
    still_open = told(*events, moves=[(12, True), (14, False), (16, True), (25, False)])

    assert over == [SCHEDULED, ENDED, REDRIVEN, ENDED]
    assert still_open == [SCHEDULED, ENDED, GATED, REDRIVEN, UNGATED, ENDED]


def test_of_many_moves_the_newest_are_told():
    moves = [(second, second % 2 == 0) for second in range(1, 60)]

    kinds = told((SCHEDULED, 0), (ENDED, 100), moves=moves)

    assert len(kinds) == 2 + 20
    assert kinds[-2:] == [UNGATED, ENDED]


async def test_moves_are_read_by_the_index_on_the_actor_however_long_the_audit_log_is(store):
    async with store.connection() as connection:
        await connection.execute(
            "insert into audit_event (at, actor, peer, method, outcome, request, answer)"
            " select now(), case number % 100 when 0 then 'breaker' else 'ann' end, '', 'GateService/Breaker',"
            " 'OK', '{}', '' from generate_series(1, 5000) as number"
        )
        parameters = {"until": AT, "lambda": LAMBDA, "most": 100}
        plan = await connection.execute(b"explain " + breaker_moves._READ, parameters)
        lines = [row[0] for row in await plan.fetchall()]

    assert any("audit_event_by_actor" in line for line in lines), lines


async def test_a_task_that_waits_behind_a_breaker_says_when_it_opened(client, store, task_states, clock, dsn):
    await task_states.register()
    await task_states.register("report.make")
    await whole.put_breaker(store, NewBreaker(LAMBDA, 0.5, 10, MINUTE, MINUTE, 3, "ann", ""))
    before = await client.schedule(LAMBDA)
    await clock.tick(5 * SECOND)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(
            "insert into breaker_count (lambda, second, ended, failed)"
            " values (%s, date_trunc('second', duly_now()) - interval '2 s', 20, 20)",
            [LAMBDA],
        )
    await judge_breakers(store, [LAMBDA])
    after, other = await client.schedule(LAMBDA), await client.schedule("report.make")

    histories = [(await client.explain(task)).history for task in (before, after, other)]

    kinds = [[event.kind for event in history] for history in histories]
    assert kinds == [
        [HistoryKind.SCHEDULED, HistoryKind.GATED],
        [HistoryKind.GATED, HistoryKind.SCHEDULED],
        [HistoryKind.SCHEDULED],
    ]
    assert histories[0][1].reason == "the breaker of its lambda opened: 20 of 20 runs failed"

    await delete_breakers(store, [LAMBDA])
    await clock.tick(5 * SECOND)
    later = await client.schedule(LAMBDA)

    assert [event.kind for event in (await client.explain(later)).history] == [HistoryKind.SCHEDULED]
    let_go = (await client.explain(before)).history[-1]
    assert (let_go.kind, let_go.reason) == (
        HistoryKind.UNGATED,
        "the breaker of its lambda closed: it was removed",
    )


def test_a_breaker_that_opens_after_its_probes_failed_opens_again():
    scheduled = explain_pb2.HistoryEvent(kind=SCHEDULED)
    scheduled.happened_at.FromDatetime(AT)

    found = with_breaker(
        [scheduled], [Move(AT + SECOND, True, "20 of 20"), Move(AT + MINUTE, True, "3 of 3")]
    )

    assert [event.reason for event in found[1:]] == [
        "the breaker of its lambda opened: 20 of 20",
        "the breaker of its lambda opened again: 3 of 3",
    ]
