"""The statements whose cost is followed as a store grows, and what each is asked for."""

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from benchmarks import statements
from benchmarks.store.fill import DUE, LAMBDA, LAMBDA_OF_SESSIONS, Filled
from duly_core.postgres.statements import LOCKS, READS, TRANSITIONS, Statement
from duly_core.tasks.task import TOKEN_PREFIX_BYTES
from duly_core.upkeep.partition_drop import PAGE
from duly_core.upkeep.partition_drop import STATEMENTS as RETENTION
from duly_wire.ids import new_task_id

GROUP = 100
STEPS = ("schedule_plain", "claim_work", "finish")
WITH_A_QUEUE = ("enqueue", "claim")
"""Instead of claim_work, where SQS is between."""
POLL = "next_triggers"
LAMBDAS_OF_A_SET = 1_000
_PRIORITIES = (1, 2, 3, 4)
_LAMBDAS_OF_A_POLL = 1_250
_FINDS_NOTHING = 200
"""The limit of those that look for what is late."""
_LONG = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Case:
    """One statement, and what it is asked for; what it does is taken back."""

    name: str
    statement: Statement
    parameters: Callable[[], dict[str, Any]]
    rows: int
    """That it answers with."""
    of: int = 1
    """Tasks that share the cost."""
    anew: bool = False
    """Planned for each run, as retention does."""
    times: int = 150
    """It is run so often while its CPU is counted."""

    @property
    def reads(self) -> bool:
        """It needs no transaction."""
        return self.statement.name in READS


def cases(filled: Filled) -> list[Case]:
    """Those that a store can be asked for: one with few lambdas has no sets of many.

    First those that look for what is late: the index entries of what the others took back would be in their way.
    """
    found = [*_sweeps(), *_steps(filled), *_of_one(filled), *_of_sessions(filled), *_of_graphs(filled)]
    return [*found, *_of_many_lambdas(filled)] if len(filled.lambdas) >= 2 * LAMBDAS_OF_A_SET else found


def _steps(filled: Filled) -> Iterator[Case]:
    named = partial(_named, of=GROUP, rows=GROUP)
    yield named("schedule_plain", lambda: _new([LAMBDA] * GROUP))
    yield named("claim_work", partial(_work, LAMBDA))
    yield named("finish", lambda: _ended(_some(filled.claimed)))
    yield named("enqueue", lambda: statements.enqueue(LAMBDA, GROUP))
    yield named("claim", lambda: _claims(_some(filled.enqueued)))
    yield _named(POLL, lambda: statements.next_triggers([(LAMBDA, statements.PRIORITY)]))


def _of_one(filled: Filled) -> Iterator[Case]:
    nothing = {"result": None, "encoding": None, "started_at": None}

    def end() -> dict[str, Any]:
        task_id = random.choice(filled.claimed)
        return {"task_id": task_id, "token": task_id} | nothing

    yield _named("schedule_one", lambda: statements.schedule_one(new_task_id(), LAMBDA, b"x" * 100))
    yield _named("finish_one", end)


def _of_sessions(filled: Filled) -> Iterator[Case]:
    def new() -> dict[str, Any]:
        """Half of them in sessions that are there."""
        known = [f"m-{number}" for number in random.sample(range(1, len(filled.of_sessions) + 1), GROUP // 2)]
        sessions = known + [str(new_task_id()) for _ in range(GROUP - len(known))]
        return statements.schedule_in_sessions(_ids(), LAMBDA_OF_SESSIONS, b"x" * 100, sessions)

    named = partial(_named, of=GROUP, label="of sessions")
    yield named("schedule_in_sessions", new, label="", rows=GROUP)
    yield named("claim_work", partial(_work, LAMBDA_OF_SESSIONS), rows=GROUP)
    # one more row says that work of the lambda is due: what followed each
    yield named("finish", lambda: _ended(_some(filled.of_sessions)), rows=GROUP + 1)


def _of_graphs(filled: Filled) -> Iterator[Case]:
    given = lambda: _ended(_some(filled.of_graphs))  # noqa: E731
    yield _named("finish", given, label="of graphs", rows=GROUP + 1, of=GROUP)


def _of_many_lambdas(filled: Filled) -> Iterator[Case]:
    """The first lambdas have a task that is due."""
    with_due, others = filled.lambdas[:DUE], filled.lambdas[DUE : DUE + LAMBDAS_OF_A_SET]
    queues = [(name, priority) for name in filled.lambdas[:_LAMBDAS_OF_A_POLL] for priority in _PRIORITIES]
    new = lambda: _new(random.choices(filled.lambdas, k=GROUP))  # noqa: E731
    yield _named("schedule_plain", new, label="of 100 lambdas", rows=GROUP, of=GROUP)
    set_of = f"for {LAMBDAS_OF_A_SET:,} lambdas"
    claim = partial(_named, "claim_work", times=30)
    yield claim(partial(_work, *with_due), label=f"{set_of}, all with a due task", rows=GROUP, of=GROUP)
    yield claim(partial(_work, *others), label=f"{set_of}, nothing due", rows=LAMBDAS_OF_A_SET)
    yield _named(
        POLL,
        lambda: statements.next_triggers(queues),
        label=f"for {len(queues):,} queues",
        rows=len(queues),
        times=30,
    )


def _sweeps() -> Iterator[Case]:
    """What looks, again and again, for something that is late, and finds nothing."""
    limit = {"limit": _FINDS_NOTHING}
    lost = {"as_of": None} | limit
    sweep = partial(_named, rows=0)
    yield sweep("reclaim", lambda: lost | {"status": "retriable_failure", "trigger_in": timedelta()})
    for name in ("quarantine_silent", "cancel_silent"):
        yield sweep(name, lambda: lost)
    for name in ("dequeue", "expire"):
        yield sweep(name, lambda: limit)
    for name in ("lock_over", "lock_uncompleted", "time_out_event_waits"):
        yield sweep(name, lambda: limit)
    yield _named("next_timeout", dict)
    before = dict.fromkeys(("ended_before", "dead_before"), datetime.now(UTC) - _LONG)
    kept = partial(sweep, anew=True)
    yield kept("expired_dead_letters", lambda: {"dead_before": before["dead_before"], "limit": PAGE})
    yield kept("expired_graphs", lambda: before | {"limit": PAGE})
    for name in (
        "abandoned_sessions",
        "idle_resource_keys",
        "expired_events",
        "idle_event_keys",
    ):
        yield kept(name, lambda: {"limit": PAGE})
    yield kept("ended_event_waits", lambda: {"after": UUID(int=0), "limit": PAGE})


def _named(
    name: str, parameters: Callable[[], dict[str, Any]], *, label: str = "", rows: int = 1, **more: Any
) -> Case:
    statement = (TRANSITIONS | READS | LOCKS | RETENTION)[name]
    return Case(f"{name}, {label}" if label else name, statement, parameters, rows, **more)


def _ids() -> list[UUID]:
    return [new_task_id() for _ in range(GROUP)]


def _some(ids: list[UUID]) -> list[UUID]:
    start = random.randrange(len(ids) - GROUP)
    return ids[start : start + GROUP]


def _new(lambdas: list[str]) -> dict[str, Any]:
    new = statements.schedule(_ids(), LAMBDA, b"x" * 100)
    return new | {"lambdas": lambdas, "names": list(dict.fromkeys(lambdas))}


def _work(*lambdas: str) -> dict[str, Any]:
    one = statements.claim_work(LAMBDA, GROUP, os.urandom(TOKEN_PREFIX_BYTES))
    count = len(lambdas)
    arrays = {name: one[name] * count for name in ("priorities", "sizes", "skips")}
    return one | arrays | {"lambdas": list(lambdas)}


def _claims(ids: list[UUID]) -> dict[str, Any]:
    return statements.claim(ids, _ids(), LAMBDA)


def _ended(ids: list[UUID]) -> dict[str, Any]:
    return statements.finish(ids, ids)
