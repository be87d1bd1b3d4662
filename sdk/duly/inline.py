"""Runs one attempt in this process: no service, no callback process, and the path that a real attempt takes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from duly import invoke
from duly.context import TaskContext
from duly.enums import Priority
from duly.errors import PayloadTooLargeError, UnknownLambdaError
from duly.ids import new_task_id
from duly.payload import DEFAULT_LIMIT_BYTES, encode
from duly.time_conversion import to_duration, to_timestamp
from duly.v1 import hsc_pb2, task_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from duly.invoke import RunAsync
    from duly.registry import App

_HOUR = timedelta(hours=1)


def run_inline(  # noqa: PLR0913 (each is something that a test may say of the attempt)
    app: App,
    name: str,
    payload: object,
    run_async: RunAsync,
    report: Callable[[float, str], None],
    *,
    attempt: int = 1,
    fence: int | None = None,
    priority: Priority = Priority.NORMAL,
    due_at: datetime | None = None,
    tick_at: datetime | None = None,
    cancelled: bool = False,
    checkpoint: object = None,
    keep: Callable[[bytes, bytes], None] | None = None,
    results: Mapping[str, object] | None = None,
) -> hsc_pb2.TaskResult:
    """Run the callback of lambda `name` once and return what an Executor would report.

    The payload is encoded, decoded and checked as on its way through Duly. `run_async` runs an async callback's
    coroutine; `report` is told of progress, `keep` of checkpoints. `checkpoint` is what an attempt before kept.
    `max_runtime` is not enforced.

    Raises UnknownLambdaError, EncodingError and PayloadTooLargeError where `schedule` would.
    """
    if (callback := app.callbacks.get(name)) is None:
        raise UnknownLambdaError(
            f"the app has no lambda {name!r}; it has: {', '.join(app.callbacks) or 'none'}"
        )
    data, encoding = encode(payload)
    if len(data) > (limit := callback.policy.payload_limit or DEFAULT_LIMIT_BYTES):
        raise PayloadTooLargeError(f"the payload has {len(data)} bytes, the limit of {name!r} is {limit}")
    task = hsc_pb2.ClaimedTask(
        claim=hsc_pb2.Claim(task_id=new_task_id().bytes, token=bytes(16)),
        priority=task_pb2.Priority.ValueType(priority),
        payload=data,
        payload_encoding=encoding,
        attempt=attempt,
        fence=attempt if fence is None else fence,
        due_at=to_timestamp(due_at or datetime.now(UTC)),
        max_runtime=to_duration(callback.policy.max_runtime or _HOUR),
        tick_at=to_timestamp(tick_at) if tick_at is not None else None,
    )
    setattr(task, "lambda", name)
    task.checkpoint, _ = encode(checkpoint)
    for label, value in (results or {}).items():
        before, written_as = encode(value)
        task.graph.predecessors.add(
            label=label,
            task_id=new_task_id().bytes,
            status=task_pb2.TASK_STATUS_SUCCESS,
            result=before,
            result_encoding=written_as,
        )
    if results is not None:
        task.graph.graph_id = new_task_id().bytes
    context = TaskContext.for_task(task, report, keep)
    if cancelled:
        context.request_cancel()
    return invoke.run(callback, task, context, run_async)
