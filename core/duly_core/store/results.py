"""Write how attempts ended: the moves out of claimed and processing, each guarded by the token."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from duly_core.lifecycle import Status
from duly_core.store.claims import answer
from duly_core.store.pool import Store, fetch, uuids
from duly_core.store.statements import TRANSITIONS
from duly_core.task import Applied, Outcome, Result, TaskId, Token

_FINAL = {
    Outcome.SUCCESS: Status.SUCCESS,
    Outcome.FATAL_FAILURE: Status.FATAL_FAILURE,
    Outcome.CANCELLED: Status.CANCELLED,
}


async def set_results(store: Store, results: Sequence[Result]) -> tuple[list[Applied], timedelta | None]:
    """Write many results, each for itself; answers in order, and how far ahead the first of them runs again.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again with the same tokens.
    """
    batch = sorted(results, key=lambda result: result.task_id)
    final = [result for result in batch if result.outcome in _FINAL]
    failed = [result for result in batch if result.outcome in (Outcome.RETRIABLE_FAILURE, Outcome.CRASHED)]
    snoozed = [result for result in batch if result.outcome is Outcome.SNOOZED]
    applied: set[Token] = set()
    again: list[TaskId] = []
    due_in: list[timedelta] = []
    # one transaction: a task that is to be cancelled must not be seen waiting for another run in between
    async with store.connection() as connection, connection.transaction():
        if final:
            rows = await fetch(connection, TRANSITIONS["finish"], _finish_parameters(final))
            applied |= {row[1] for row in rows}
        rows = []
        if failed:
            rows = await fetch(connection, TRANSITIONS["retry"], _retry_parameters(failed))
            retried = {row[1] for row in rows}
            if left := [result for result in failed if result.token not in retried]:
                ended = await fetch(connection, TRANSITIONS["exhaust"], _exhaust_parameters(left))
                applied |= {row[1] for row in ended}
        if snoozed:
            parameters = _claims(snoozed) | {"retry_after": [result.retry_after for result in snoozed]}
            rows += await fetch(connection, TRANSITIONS["snooze"], parameters)
        for task_id, token, ahead in rows:
            applied.add(token)
            again.append(task_id)
            due_in.append(ahead)
        if again:
            # a cancel that was asked for while it ran takes effect now that nobody runs it
            parameters = {"task_ids": uuids(sorted(again)), "only_if_requested": True}
            await fetch(connection, TRANSITIONS["cancel"], parameters)
    answers = await answer(store, [(result.task_id, result.token) for result in results], applied)
    return answers, min(due_in, default=None)


def _claims(results: Sequence[Result]) -> dict[str, Any]:
    return {
        "task_ids": uuids(result.task_id for result in results),
        "tokens": uuids(result.token for result in results),
    }


def _finish_parameters(results: Sequence[Result]) -> dict[str, Any]:
    return _claims(results) | {
        "statuses": [str(_FINAL[result.outcome]) for result in results],
        "results": [result.result for result in results],
        "encodings": [int(result.encoding) if result.result is not None else None for result in results],
        "failure_kinds": [result.failure_kind for result in results],
        "failure_messages": [result.failure_message or None for result in results],
        "started_at": [result.started_at for result in results],
    }


def _exhaust_parameters(results: Sequence[Result]) -> dict[str, Any]:
    return _claims(results) | {
        "crashed": [result.outcome is Outcome.CRASHED for result in results],
        "failure_messages": [result.failure_message or None for result in results],
        "started_at": [result.started_at for result in results],
    }


def _retry_parameters(results: Sequence[Result]) -> dict[str, Any]:
    return _exhaust_parameters(results) | {
        "retry_after": [result.retry_after for result in results],
        "failure_kinds": [result.failure_kind for result in results],
    }
