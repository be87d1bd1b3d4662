"""Write successes together with the tasks that their callbacks scheduled: all of one attempt, or nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from psycopg.rows import TupleRow, tuple_row

from duly_core.attachments.rules import NotStored
from duly_core.graphs.growth import NotWrittenError, grow, lock_graph_of, redriven
from duly_core.graphs.rules import GraphError
from duly_core.postgres.arrays import byteas, int2s, timestamps, uuids
from duly_core.postgres.pool import Connection, Step, fetch
from duly_core.postgres.statements import TRANSITIONS, UNWATCHED, Statement
from duly_core.results import unique_children
from duly_core.results.kept import keep_uses
from duly_core.tasks.schedule import lock_child_sessions, missing_of, write_children
from duly_core.tasks.task import Result, Token
from duly_core.tasks.unique_keys import KeyOfTask
from duly_wire.enums import FailureKind, Outcome
from duly_wire.ids import TaskId

_REFUSED = (
    "ctx.schedule: the lambda of a task was unregistered meanwhile, or its id is taken: nothing was scheduled"
)


@dataclass(slots=True)
class Chained:
    """What came of successes with children."""

    applied: set[Token] = field(default_factory=set)
    due_in: list[timedelta] = field(default_factory=list)
    """How far ahead each child is due, and what their parents' ends released."""
    lambdas: set[str] = field(default_factory=set)
    """Of which lambdas these are."""
    refused: list[Result] = field(default_factory=list)
    """Fatal failures, to be written in place of successes whose children could not be."""


class _RefusedError(Exception):
    """Takes back a transaction in which these could not be written."""

    def __init__(self, reasons: dict[Token, str]) -> None:
        super().__init__(reasons)
        self.reasons = reasons
        """By the token of the result that they came with."""


NobodyWatches = Callable[[], bool]
"""Tells whether it is certain that nobody watches what ends now."""


def unknown() -> bool:
    """Say that somebody may watch."""
    return False


async def finish_with_children(connection: Connection, parents: Sequence[Result]) -> Chained:
    """End tasks and write their children, in one transaction; one that cannot be written is another's trouble only once.

    Children of a result that is refused (its claim is lost, or it was written before) are not written.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again with the same tokens.
    """
    chained = Chained()
    left = list({result.token: result for result in parents}.values())
    growing = [each.task_id for each in left if each.nodes]
    apart = await redriven(connection, growing) if growing else set()
    await _finish_all(connection, [each for each in left if each.task_id not in apart], chained)
    for each in left:
        if each.task_id in apart:
            await _finish_all(connection, [each], chained, lock=each.task_id)
    return chained


async def _finish_all(
    connection: Connection, left: Sequence[Result], chained: Chained, lock: TaskId | None = None
) -> None:
    """Write these in one transaction, without those that cannot be written.

    `lock` is a redriven task that adds nodes: its end locks no graph. Its graph is locked before all else but sessions, and it is the only
    task of the transaction: among others the locks would be out of order.
    """
    while left:
        try:
            async with connection.transaction():
                keys = await unique_children.lock_keys(connection, left)
                await _lock_sessions(connection, left)
                if lock is not None:
                    await lock_graph_of(connection, lock)
                await _finish(connection, left, chained, keys)
        except _RefusedError as error:
            reasons = error.reasons
            chained.refused += [refused(each, reasons[each.token]) for each in left if each.token in reasons]
            left = [each for each in left if each.token not in reasons]
        else:
            break


async def _lock_sessions(connection: Connection, parents: Sequence[Result]) -> None:
    """Lock the sessions of all parents and children, if children have some: after the parents' ends it would be too late."""
    children = [(each.task_id, child) for each in parents for child in each.children]
    if any(child.session is not None for _, child in children):
        await lock_child_sessions(connection, {each.task_id: each.token for each in parents}, children)


async def _finish(
    connection: Connection, parents: Sequence[Result], chained: Chained, keys: Sequence[KeyOfTask]
) -> None:
    rows = await finish(connection, parents)
    applied = {row[1] for row in rows if row[0]}
    released = [row for row in rows if not row[0]]
    judged = await unique_children.judge(connection, [each for each in parents if each.token in applied])
    if judged.refused:
        raise _RefusedError(judged.refused)
    children = judged.written
    lacking: dict[TaskId, NotStored] = await missing_of(connection, children)
    unkept = await keep_uses(connection, [each for each in parents if each.token in applied])
    if bad_uses := {
        each.token: f"ctx.schedule: {lacking[child.task_id]}"
        for each in parents
        for child in each.children
        if child.task_id in lacking
    } | {token: f"ctx.attach: {missing}" for token, missing in unkept.items()}:
        raise _RefusedError(bad_uses)
    due_in = await write_children(connection, children) if children else {}
    await unique_children.settle(connection, judged, due_in.keys(), keys)
    missing = {child.task_id for child in children} - due_in.keys()
    if bad := [each.token for each in parents if any(child.task_id in missing for child in each.children)]:
        raise _RefusedError(dict.fromkeys(bad, _REFUSED))
    grown = await _grow(connection, [each for each in parents if each.token in applied and each.nodes])
    chained.applied |= applied
    chained.due_in += [
        *(ahead for ahead in due_in.values() if ahead is not None),
        *(row[3] for row in released),
        *(ahead for _, ahead in grown),
    ]
    chained.lambdas |= {child.lambda_name for child in children} | {row[2] for row in released}
    chained.lambdas |= {name for name, _ in grown}


async def finish(
    connection: Connection, results: Sequence[Result], nobody_watches: NobodyWatches = unknown
) -> list[TupleRow]:
    """End these as successes; return the statement's rows."""
    if len(results) == 1:
        return await fetch(
            connection, _statement("finish_one", nobody_watches), parameters_of_one(results[0])
        )
    return await fetch(connection, _statement("finish", nobody_watches), success_parameters(results))


def _statement(name: str, nobody_watches: NobodyWatches) -> Statement:
    return (UNWATCHED if nobody_watches() else TRANSITIONS)[name]


async def _grow(connection: Connection, parents: Sequence[Result]) -> list[tuple[str, timedelta]]:
    """Add the nodes of each to its graph, which is locked."""
    due: list[tuple[str, timedelta]] = []
    bad: dict[Token, str] = {}
    for each in parents:
        try:
            due += (await grow(connection, each.task_id, each.nodes)).items()
        except GraphError as error:
            bad[each.token] = f"ctx.add_node: {error}"
            if isinstance(error, NotWrittenError):  # what it wrote would be in the way of the others
                break
    if bad:
        raise _RefusedError(bad)
    return due


def refused(result: Result, reason: str) -> Result:
    """What is written of an attempt whose children, or attachments, cannot be written; what is stored of these is kept."""
    return Result(
        result.task_id,
        result.token,
        Outcome.FATAL_FAILURE,
        failure_kind=FailureKind.BAD_RESULT,
        failure_message=reason,
        started_at=result.started_at,
        attachments=result.attachments,
    )


def claims_of(results: Sequence[Result]) -> dict[str, Any]:
    """The parameters that every statement on results has."""
    return {
        "task_ids": uuids(result.task_id for result in results),
        "tokens": uuids(result.token for result in results),
        "started_at": timestamps([result.started_at for result in results]),
    }


def step_of_one(result: Result, nobody_watches: NobodyWatches = unknown) -> Step[TupleRow]:
    """Return what ends this one as a success, to go with another statement."""
    return Step(_statement("finish_one", nobody_watches), parameters_of_one(result), tuple_row)


def parameters_of_one(result: Result) -> dict[str, Any]:
    """Those of `finish_one`."""
    return {
        "task_id": UUID(bytes=result.task_id),
        "token": UUID(bytes=result.token),
        "result": result.result,
        "encoding": result.encoding if result.result is not None else None,
        "started_at": result.started_at,
    }


def success_parameters(results: Sequence[Result]) -> dict[str, Any]:
    """Those of `finish`."""
    return claims_of(results) | {
        "results": byteas([result.result for result in results]),
        "encodings": int2s([result.encoding if result.result is not None else None for result in results]),
    }
