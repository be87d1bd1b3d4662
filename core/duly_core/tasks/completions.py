"""Complete tasks that their callbacks handed over. Whoever has the token of one may: its hash is compared in each write."""

import enum
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from duly_core.postgres.arrays import byteas, int2s, intervals, texts, uuids
from duly_core.postgres.pool import Store, fetch
from duly_core.postgres.statements import LOCKS, READS, TRANSITIONS
from duly_core.tasks.lifecycle import FINAL, HELD, Status
from duly_core.tasks.task import Encoding, Token
from duly_wire.enums import FailureKind, Outcome
from duly_wire.ids import TaskId

PARKED_ON = "completion:"
"""What a task that was handed over is parked on."""

SHORTEST_WAIT = timedelta(seconds=1)
LONGEST_WAIT = timedelta(days=7)
"""How long a task may wait for its completion."""

_NOBODY = "nobody completed it in time"


class Completion(NamedTuple):
    """How the work ended for which a task was handed over."""

    task_id: TaskId
    token_hash: bytes
    """SHA-256 of the completion token."""
    outcome: Outcome
    """SUCCESS, RETRIABLE_FAILURE or FATAL_FAILURE."""
    result: bytes | None = None
    encoding: Encoding = Encoding.JSON
    failure_message: str = ""
    retry_after: timedelta | None = None
    by: str | None = None
    """The principal that completes it; None: nobody was asked who they are."""


class CompletionVerdict(enum.Enum):
    """What became of a Completion."""

    COMPLETED = "completed"
    """Now, or before by the same token, and with the same outcome."""
    ENDED = "ended"
    """The token was the last one, and the task has ended otherwise."""
    TOO_EARLY = "too early"
    """The attempt that may have given out the token still runs."""
    NOT_CURRENT = "not current"
    """The token is of an attempt that is over, or of no task."""


class Completed(NamedTuple):
    """The store's answer to one Completion."""

    verdict: CompletionVerdict
    status: Status | None = None
    """Of the task, with COMPLETED and ENDED."""


class TokenState(enum.Enum):
    """What a store knows of a completion token whose task it has."""

    CURRENT = "current"
    """The task waits for it, or it was the last one."""
    TASK_RUNS = "task runs"
    """The attempt may have given it out."""
    OF_NO_ATTEMPT = "of no attempt"
    """It is of an attempt that is over, or of another task with this id in another store."""


class Completions(NamedTuple):
    """What came of many."""

    answers: list[Completed]
    """One for each, in their order."""
    due: dict[str, timedelta]
    """The lambdas of tasks that run again, or that waited for one of these; and how far ahead the first of each is due."""


class Uncompleted(NamedTuple):
    """What came of tasks that nobody completed in time."""

    failed: int
    """Attempts."""
    ended: int
    """Of these, those that were the last of their task."""
    due: dict[str, timedelta]
    """As in Completions."""


def completion_as_token(token_hash: bytes) -> Token:
    """Return the hash of a completion token as the last token of a task, as the fragment of this name writes it."""
    return token_hash[:16]


async def complete(store: Store, completions: Sequence[Completion]) -> Completions:
    """Complete tasks, each for itself. Of several completions by one token the first counts.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again with the same completions.
    """
    # by token: whoever guesses one of a task must not hold up the right one
    first: dict[bytes, Completion] = {}
    for each in completions:
        first.setdefault(each.token_hash, each)
    batch = sorted(first.values(), key=lambda each: (each.task_id, each.token_hash))
    succeeded = [each for each in batch if each.outcome is Outcome.SUCCESS]
    failed = [each for each in batch if each.outcome is not Outcome.SUCCESS]
    done: dict[bytes, Status] = {}
    due: dict[str, timedelta] = {}
    if succeeded:
        for token_hash, lambda_name, due_in in await _move(store, "complete", succeeded):
            if token_hash is None:
                _note(due, lambda_name, due_in)
            else:
                done[bytes.fromhex(token_hash)] = Status.SUCCESS
    if failed:
        for token_hash, status, lambda_name, due_in in await _move(store, "fail_handed_over", failed):
            if token_hash is not None:
                done[bytes.fromhex(token_hash)] = Status(status)
            if due_in is not None:
                _note(due, lambda_name, due_in)
    answers = [
        Completed(CompletionVerdict.COMPLETED, done[each.token_hash])
        if each is first[each.token_hash] and each.token_hash in done
        else Completed(CompletionVerdict.NOT_CURRENT)
        for each in completions
    ]
    left = sorted(
        (place for place, answer in enumerate(answers) if answer.verdict is CompletionVerdict.NOT_CURRENT),
        key=lambda place: completions[place].task_id,
    )
    if left:
        rows = await store.run(READS["completed_before"], _asked([completions[place] for place in left]))
        for place, status, is_waiting, is_last, is_late, is_same in rows:
            answers[left[place]] = _judge(
                completions[left[place]],
                Status(status),
                is_waiting=is_waiting,
                is_last=is_last,
                is_late=is_late,
                is_same=is_same,
            )
    return Completions(answers, due)


async def states_of_tokens(
    store: Store, tokens: Collection[tuple[TaskId, bytes]]
) -> dict[tuple[TaskId, bytes], TokenState]:
    """Return what a store knows of tokens, each given as the task's id and the SHA-256; those without a task are left out.

    Raises:
        StoreUnavailableError: ask again.
    """
    batch = [Completion(task_id, hashed, Outcome.SUCCESS) for task_id, hashed in sorted(set(tokens))]
    found = {}
    for place, status, is_waiting, is_last, *_ in await store.run(READS["completed_before"], _asked(batch)):
        state = TokenState.TASK_RUNS if Status(status) in HELD else TokenState.OF_NO_ATTEMPT
        each = batch[place]
        found[each.task_id, each.token_hash] = TokenState.CURRENT if is_waiting or is_last else state
    return found


async def fail_uncompleted(store: Store, limit: int) -> Uncompleted:
    """Fail the attempts of up to `limit` tasks that nobody completed in time.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    due: dict[str, timedelta] = {}
    async with store.connection() as connection, connection.transaction():
        over = await fetch(connection, LOCKS["lock_uncompleted"], {"limit": limit})
        if not over:
            return Uncompleted(0, 0, due)
        batch = [
            Completion(task_id, bytes.fromhex(token_hash), Outcome.RETRIABLE_FAILURE, failure_message=_NOBODY)
            for task_id, token_hash in sorted(over)
        ]
        parameters = _failures(batch, FailureKind.COMPLETION_TIMEOUT)
        rows = await fetch(connection, TRANSITIONS["fail_handed_over"], parameters)
    for _, _, lambda_name, due_in in rows:
        if due_in is not None:
            _note(due, lambda_name, due_in)
    failed = [row[1] for row in rows if row[0] is not None]
    return Uncompleted(len(failed), failed.count(Status.FATAL_FAILURE), due)


async def _move(store: Store, move: str, batch: Sequence[Completion]) -> list[tuple[Any, ...]]:
    """Write what these say of tasks that wait for it; the statement's rows."""
    # whoever guesses locks no session, graph or resource of somebody else; results are of no use to this look
    rows = await store.run(READS["completed_before"], _asked([each._replace(result=None) for each in batch]))
    batch = [batch[place] for place in sorted(row[0] for row in rows if row[2])]
    if not batch:
        return []
    async with store.connection() as connection, connection.transaction():
        asked = {"task_ids": uuids(each.task_id for each in batch)}
        waiting = {row[0] for row in await fetch(connection, LOCKS["lock_waiting"], asked)}
        found = [each for each in batch if each.task_id in waiting]
        if not found:
            return []
        parameters = (
            _asked(found) | {"by": texts([each.by for each in found])}
            if move == "complete"
            else _failures(found, FailureKind.CALLBACK)
        )
        return await fetch(connection, TRANSITIONS[move], parameters)


def _judge(
    asked: Completion, status: Status, *, is_waiting: bool, is_last: bool, is_late: bool, is_same: bool
) -> Completed:
    """Say why a task was not completed."""
    if is_waiting:  # since just now: the word of it came between the statements
        return Completed(CompletionVerdict.TOO_EARLY)
    if not is_last:
        verdict = CompletionVerdict.TOO_EARLY if status in HELD else CompletionVerdict.NOT_CURRENT
        return Completed(verdict)
    is_final = status in FINAL
    if asked.outcome is Outcome.SUCCESS:
        is_repeated = status is Status.SUCCESS and is_same
    elif is_final:
        is_repeated = status is Status.FATAL_FAILURE and not is_late
    else:  # it failed, and runs again or did so since
        is_repeated = asked.outcome is Outcome.RETRIABLE_FAILURE and not is_late
    if is_repeated:
        return Completed(CompletionVerdict.COMPLETED, status)
    return (
        Completed(CompletionVerdict.ENDED, status) if is_final else Completed(CompletionVerdict.NOT_CURRENT)
    )


def _note(due: dict[str, timedelta], lambda_name: str, due_in: timedelta) -> None:
    due[lambda_name] = min(due_in, due.get(lambda_name, due_in))


def _hashes(batch: Sequence[Completion]) -> dict[str, Any]:
    return {
        "task_ids": uuids(each.task_id for each in batch),
        "hashes": texts([each.token_hash.hex() for each in batch]),
    }


def _asked(batch: Sequence[Completion]) -> dict[str, Any]:
    return _hashes(batch) | {
        "results": byteas([each.result for each in batch]),
        "encodings": int2s([each.encoding if each.result is not None else None for each in batch]),
    }


def _failures(batch: Sequence[Completion], kind: FailureKind) -> dict[str, Any]:
    return _hashes(batch) | {
        "outcomes": texts([each.outcome.name.lower() for each in batch]),
        "retry_after": intervals([each.retry_after for each in batch]),
        "failure_kinds": int2s([kind] * len(batch)),
        "failure_messages": texts([each.failure_message or None for each in batch]),
    }
