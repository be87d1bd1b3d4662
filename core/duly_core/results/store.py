"""Write how attempts ended: the moves out of claimed and processing, each guarded by the token."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from psycopg.rows import TupleRow

from duly_core.errors import StoreUnavailableError
from duly_core.postgres.arrays import int2s, intervals, texts, uuids
from duly_core.postgres.pool import Connection, Step, Store, fetch
from duly_core.postgres.statements import LOCKS, TRANSITIONS
from duly_core.results.event_waits import refuse_full, wait_for_events
from duly_core.results.kept import keep_uses
from duly_core.results.successes import (
    NobodyWatches,
    claims_of,
    finish,
    finish_with_children,
    step_of_one,
    unknown,
)
from duly_core.tasks.checkpoints import keep_checkpoints
from duly_core.tasks.claims import answer
from duly_core.tasks.completions import completion_as_token
from duly_core.tasks.task import Applied, AttemptOutcome, Result, Token
from duly_core.tasks.waiting import ENTERS, enter_sessions
from duly_wire.enums import Outcome

_FAILED = {
    Outcome.FATAL_FAILURE: AttemptOutcome.FATAL_FAILURE,
    Outcome.RETRIABLE_FAILURE: AttemptOutcome.RETRIABLE_FAILURE,
    Outcome.CRASHED: AttemptOutcome.CRASHED,
    Outcome.CANCELLED: AttemptOutcome.CANCELLED,
}

RunStep = Callable[[Step[TupleRow]], Awaitable[list[TupleRow] | None]]
"""Runs a statement, and returns its rows; None: it did not run."""


@dataclass(frozen=True, slots=True)
class Written:
    """What came of a group of results."""

    verdicts: list[Applied]
    """One for each result, in its order."""
    due_in: timedelta | None
    """How far ahead the first of those that run again does; None: none does."""
    due_lambdas: frozenset[str]
    """Of which lambdas they are; empty: of some."""
    retried: Counter[str]
    """How many retries were written of each lambda, after failures and crashes; snoozes are none."""


async def set_results(
    store: Store,
    results: Sequence[Result],
    hold_back: Mapping[str, timedelta] | None = None,
    run_one: RunStep | None = None,
    nobody_watches: NobodyWatches = unknown,
) -> Written:
    """Write many results, each for itself.

    `run_one` runs the statement of a lone success. `nobody_watches` spares successes the look whether somebody does.

    `hold_back` is the least time, by lambda name, that retries written now have to wait; each waits up to half as
    much again, so that they do not come together. Neither the backoff nor the callback's retry_after shortens it.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again with the same tokens.
    """
    written = await _write_one(store, results, run_one, nobody_watches) if run_one is not None else None
    written = written or await _write_all(store, results, hold_back or {}, nobody_watches)
    if written.due_in is None or written.due_in > ENTERS / 2:
        return written
    return await _let_nodes_enter(store, written)


async def _let_nodes_enter(store: Store, written: Written) -> Written:
    """Put nodes that these ends released into their sessions; what is left then is for a Store Consumer."""
    try:
        entered = await enter_sessions(store)
    except StoreUnavailableError:
        entered = {}
    return replace(
        written,
        due_in=timedelta(),
        due_lambdas=written.due_lambdas.union(entered) if written.due_lambdas else written.due_lambdas,
    )


async def _write_all(
    store: Store, results: Sequence[Result], hold_back: Mapping[str, timedelta], nobody_watches: NobodyWatches
) -> Written:
    batch = sorted(results, key=lambda result: result.task_id)
    succeeded = [result for result in batch if result.outcome is Outcome.SUCCESS]
    parents = [result for result in succeeded if result.writes_more]
    if parents:
        succeeded = [result for result in succeeded if not result.writes_more]
    unsuccessful = [result for result in batch if result.outcome is not Outcome.SUCCESS]
    # a report that came twice at once is written once: one statement must not plan two ends for one claim
    failed = list({result.token: result for result in unsuccessful if result.outcome in _FAILED}.values())
    snoozed = [result for result in unsuccessful if result.outcome is Outcome.SNOOZED]
    handed_over = list(
        {result.token: result for result in unsuccessful if result.outcome is Outcome.COMPLETE_LATER}.values()
    )
    waiting = list(
        {result.token: result for result in unsuccessful if result.outcome is Outcome.WAIT_FOR_EVENT}.values()
    )
    applied, chained_lambdas = set[Token](), set[str]()
    due_in: list[timedelta] = []
    retried: Counter[str] = Counter()
    released: list[tuple[Any, ...]] = []
    """Rows without a task: what the ends of others made due."""
    async with store.connection() as connection:
        # each statement commits by itself, so that rows are never locked in another order than that of their ids
        if succeeded:
            rows = await finish(connection, succeeded, nobody_watches)
            applied |= {row[1] for row in rows if row[0]}
            released += [row for row in rows if not row[0]]
        if parents:
            chained = await finish_with_children(connection, parents)
            applied |= chained.applied
            due_in += chained.due_in
            chained_lambdas = chained.lambdas
            failed = sorted([*failed, *chained.refused], key=lambda result: result.task_id)
        failed, waiting = await refuse_full(connection, failed, waiting)
        await keep_checkpoints(connection, [*failed, *snoozed, *handed_over, *waiting])
        if failed:
            parameters = _failure_parameters(failed) | _hold_back_parameters(hold_back)
            async with _transaction_if(connection, any(each.attachments for each in failed)):
                rows = await fetch(connection, TRANSITIONS["fail"], parameters)
                written = {row[1] for row in rows if row[0]}
                await keep_uses(connection, [each for each in failed if each.token in written])
            released += [row for row in rows if not row[0]]
            for _, token, lambda_name, ahead in (row for row in rows if row[0]):
                applied.add(token)
                if ahead is not None:
                    due_in.append(ahead)
                    retried[lambda_name] += 1
        if snoozed:
            # one transaction: a task that is to be cancelled must not be seen waiting for another run in between
            async with connection.transaction():
                await fetch(connection, LOCKS["lock_cancelled"], claims_of(snoozed))
                found = await fetch(connection, TRANSITIONS["snooze"], _snooze_parameters(snoozed))
                rows = [row for row in found if row[0]]
                released += [(None, None, row[3], row[2]) for row in found if not row[0]]
                if rows:
                    again = {
                        "task_ids": uuids(sorted(row[0] for row in rows)),
                        "only_if_requested": True,
                        "by": None,
                    }
                    cancelled = await fetch(connection, TRANSITIONS["cancel"], again)
                    released += [(None, None, *row[1:]) for row in cancelled if not row[0]]
                    written = {row[1] for row in rows}
                    await keep_uses(connection, [each for each in snoozed if each.token in written])
            applied |= {row[1] for row in rows}
            due_in += [row[2] for row in rows]
        for write, some in ((_hand_over, handed_over), (wait_for_events, waiting)):
            if some:
                written, freed = await write(connection, some)
                applied |= written
                released += freed
    verdicts = await _answer(store, results, applied)
    due_in += [row[3] for row in released]
    lambdas = frozenset(retried) | chained_lambdas | {row[2] for row in released}
    return Written(verdicts, min(due_in, default=None), frozenset() if snoozed else lambdas, retried)


async def _write_one(
    store: Store, results: Sequence[Result], run: RunStep, nobody_watches: NobodyWatches
) -> Written | None:
    """Write a lone success by `run`; None: these are no such result, or it did not run."""
    if len(results) != 1 or results[0].outcome is not Outcome.SUCCESS or results[0].writes_more:
        return None
    rows = await run(step_of_one(results[0], nobody_watches))
    if rows is None:
        return None
    released = [row for row in rows if not row[0]]
    verdicts = await _answer(store, results, {row[1] for row in rows if row[0]})
    due_in = min((row[3] for row in released), default=None)
    return Written(verdicts, due_in, frozenset(row[2] for row in released), Counter())


async def _hand_over(
    connection: Connection, results: Sequence[Result]
) -> tuple[set[Token], list[tuple[Any, ...]]]:
    """Let tasks wait for whoever completes them; return what was written, and rows without a task.

    What is to be cancelled ends at once, in the same transaction.
    """
    async with connection.transaction():
        await fetch(connection, LOCKS["lock_cancelled"], claims_of(results))
        found = await fetch(connection, TRANSITIONS["hand_over"], _hand_over_parameters(results))
        released = [(None, None, row[3], row[4]) for row in found if not row[0]]
        rows = [row for row in found if row[0]]
        if cancelled := sorted(row[0] for row in rows if row[2]):
            ending = {"task_ids": uuids(cancelled), "without_session": uuids([]), "by": None}
            ended = await fetch(connection, TRANSITIONS["cancel_waiting"], ending)
            released += [(None, None, *row[1:]) for row in ended if not row[0]]
        written = {row[1] for row in rows}
        await keep_uses(connection, [each for each in results if each.token in written])
    return written, released


async def _answer(store: Store, results: Sequence[Result], applied: set[Token]) -> list[Applied]:
    """Answer as `answer` does. A hand-over that was written before may be over: the completion's is the last token since then."""
    verdicts = await answer(store, [(result.task_id, result.token) for result in results], applied)
    if Applied.LOST not in verdicts:
        return verdicts
    lost = [
        place
        for place, (result, verdict) in enumerate(zip(results, verdicts, strict=True))
        if verdict is Applied.LOST and result.outcome is Outcome.COMPLETE_LATER
    ]
    if lost:
        hashes = [
            (results[place].task_id, completion_as_token(results[place].completion_hash)) for place in lost
        ]
        for place, verdict in zip(lost, await answer(store, hashes, set()), strict=True):
            verdicts[place] = verdict
    return verdicts


def _transaction_if(connection: Connection, needed: bool) -> AbstractAsyncContextManager[object]:  # noqa: FBT001
    return connection.transaction() if needed else nullcontext()


def _failure_parameters(results: Sequence[Result]) -> dict[str, Any]:
    return claims_of(results) | {
        "outcomes": texts([_outcome_of(result) for result in results]),
        "retry_after": intervals([result.retry_after for result in results]),
        "failure_kinds": int2s([result.failure_kind for result in results]),
        "failure_messages": texts([result.failure_message or None for result in results]),
        "tracebacks": texts([result.traceback or None for result in results]),
    }


def _outcome_of(result: Result) -> str:
    if result.skips:
        return "skipped"
    return "crashed_with_worker" if result.with_worker else _FAILED[result.outcome]


def _snooze_parameters(results: Sequence[Result]) -> dict[str, Any]:
    return claims_of(results) | {
        "retry_after": intervals([result.retry_after for result in results]),
        "failure_messages": texts([result.failure_message or None for result in results]),
    }


def _hand_over_parameters(results: Sequence[Result]) -> dict[str, Any]:
    return claims_of(results) | {
        "hashes": texts([result.completion_hash.hex() for result in results]),
        "complete_within": intervals([result.complete_within for result in results]),
    }


def _hold_back_parameters(hold_back: Mapping[str, timedelta]) -> dict[str, Any]:
    return {"held_back": texts(list(hold_back)), "hold_back": intervals(list(hold_back.values()))}
