"""Parameters of the store's statements on a task's way, for those parts of the benchmark that run them by themselves.

Lists are what psycopg makes literals of; `in_binary` makes them what the services send.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from duly_core.postgres.arrays import byteas, texts, timestamps, uuids
from duly_core.postgres.task_fields import FIELDS
from duly_core.tasks.schedule import ARRAYS

PRIORITY = 3
POLL_INTERVAL = timedelta(seconds=2)
_COLUMNS: dict[str, Callable[[Sequence[Any]], object]] = {
    field.array: ARRAYS[field.type] for field in FIELDS
} | {
    "task_ids": lambda ids: uuids(each.bytes for each in ids),
    "tokens": lambda ids: uuids(each.bytes for each in ids),
    "holders": texts,
    "names": texts,
    "prefixes": byteas,
    "results": byteas,
    "started_at": timestamps,
}


def in_binary(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Whole columns in Postgres's binary form, as the services send them; a value of one task stays as it is."""
    return {
        name: _COLUMNS[name](value) if name in _COLUMNS and value is not None else value
        for name, value in parameters.items()
    }


def schedule(ids: Sequence[UUID], lambda_name: str, payload: bytes, *, tell: bool = False) -> dict[str, Any]:
    """Of `schedule_plain`: due now."""
    count = len(ids)
    return {field.array: [] for field in FIELDS if field.plain} | {
        "task_ids": sorted(ids),
        "lambdas": [lambda_name] * count,
        "collections": [""] * count,
        "priorities": [PRIORITY] * count,
        "encodings": [1] * count,
        "payloads": [payload] * count,
        "names": [lambda_name],
        "tell": tell,
    }


def schedule_one(task_id: UUID, lambda_name: str, payload: bytes, *, tell: bool = False) -> dict[str, Any]:
    """Of `schedule_one`: due now."""
    return {field.name: None for field in FIELDS if field.plain} | {
        "task_id": task_id,
        "lambda_name": lambda_name,
        "collection": "",
        "priority": PRIORITY,
        "encoding": 1,
        "payload": payload,
        "tell": tell,
    }


def schedule_in_sessions(
    ids: Sequence[UUID], lambda_name: str, payload: bytes, sessions: Sequence[str]
) -> dict[str, Any]:
    """Of `schedule_in_sessions`: due now, in the order in which they are scheduled; ids and sessions go together."""
    plain = schedule(ids, lambda_name, payload)
    of_sessions = {"sessions": list(sessions)} | dict.fromkeys(
        ("session_orders", "session_policies"), [1] * len(ids)
    )
    return (
        {field.array: plain.get(field.array, []) for field in FIELDS}
        | {"task_ids": plain["task_ids"]}
        | of_sessions
    )


def enqueue(lambda_name: str, room: int, priority: int = PRIORITY) -> dict[str, Any]:
    """Of `enqueue`: one queue."""
    return {
        "lambdas": [lambda_name],
        "priorities": [priority],
        "room": [room],
        "enqueue_timeout": timedelta(seconds=60),
    }


def claim_work(lambda_name: str, most: int, prefix: bytes, priority: int = PRIORITY) -> dict[str, Any]:
    """Of `claim_work`: one queue, one caller."""
    return {
        "lambdas": [lambda_name],
        "priorities": [priority],
        "sizes": [most],
        "skips": [0],
        "holders": ["host"],
        "prefixes": [prefix],
        "callers": 1,
        "most": most,
        "claim_timeout": timedelta(seconds=15),
        "within": POLL_INTERVAL,
    }


def next_triggers(queues: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """Of `next_triggers`."""
    return {
        "lambdas": [name for name, _ in queues],
        "priorities": [priority for _, priority in queues],
        "within": POLL_INTERVAL,
    }


def claim(ids: Sequence[UUID], tokens: Sequence[UUID], lambda_name: str) -> dict[str, Any]:
    """Of `claim`; ids and tokens go together, ids ascending."""
    return {
        "task_ids": list(ids),
        "tokens": list(tokens),
        "lambdas": [lambda_name] * len(ids),
        "holders": ["host"] * len(ids),
        "claim_timeout": timedelta(seconds=15),
    }


def finish(ids: Sequence[UUID], tokens: Sequence[UUID]) -> dict[str, Any]:
    """Of `finish`: without a result."""
    count = len(ids)
    return {
        "task_ids": list(ids),
        "tokens": list(tokens),
        "results": [None] * count,
        "encodings": [None] * count,
        "started_at": [None] * count,
    }
