"""Runs a callback in a unit test: no service, no process, the very path a real attempt takes.

Example:
    def test_a_mail_without_recipients_is_refused():
        attempt = duly.testing.run(app, "mail.send", {"to": []})

        assert attempt.outcome is duly.Outcome.FATAL_FAILURE
        assert attempt.failure_message == "nobody to send it to"

The fixtures of the pytest plugin of `duly[local]` test what takes several runs: `duly_client`, `duly_worker`, `duly_clock`
(docs/testing.md).
"""

from __future__ import annotations

import asyncio
import secrets
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from duly.attachments.encoding import encode_with, whole_of
from duly.attachments.memory import MemoryService
from duly.attachments.origin import Origin
from duly.attachments.upload import upload
from duly.attachments.uses import AttachmentUse
from duly.callbacks import invoke, invoke_batch
from duly.callbacks.codec import (
    checkpoint_of,
    encoding_of_checkpoint,
    event_of,
    payload_of,
    protect,
    result_of,
    reveal,
)
from duly.callbacks.payload import DEFAULT_LIMIT_BYTES, decode, encode
from duly.context import TaskContext
from duly.errors import PayloadTooLargeError, UnknownLambdaError
from duly.events.callback_addresses import CREATE
from duly.events.waits import namespace_of
from duly.tasks.new_task import LABELS, NewTask, aware
from duly_wire.enums import FailureKind, Outcome, Priority
from duly_wire.ids import new_task_id
from duly_wire.time_conversion import to_datetime, to_duration, to_timedelta, to_timestamp
from duly_wire.v1 import hsc_pb2, task_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence

    from duly.attachments.service import Method, Response
    from duly.callbacks.app import App
    from duly.callbacks.codec import Codec
    from duly.callbacks.invoke import RunAsync
    from duly.events.waits import Lookup
    from duly_wire.v1 import frontend_pb2

_HOUR = timedelta(hours=1)
_WEEK = timedelta(days=7)
TIMED_OUT = object()
"""In the `events` of `run`: this event does not come in time."""


@dataclass(frozen=True, slots=True)
class MadeAddress:
    """An address of one use that a callback made."""

    key: str
    title: str
    url: str = field(repr=False)
    """What the callback was given: it begins with https://duly.test/events/."""


@dataclass(frozen=True, slots=True)
class TestRun:
    """What came of one attempt, as Duly would have been told."""

    # pytest collects classes by this prefix; this one is not a test.
    __test__ = False

    outcome: Outcome
    # With SUCCESS: the result as a client would read it, so after its trip through JSON.
    result: Any
    failure_kind: FailureKind | None
    failure_message: str
    # Of what the callback raised, as Duly would keep it.
    traceback: str
    # With SNOOZED, and with a RETRIABLE_FAILURE that said so.
    retry_after: timedelta | None
    # What the callback told with ctx.progress: (fraction, note), oldest first.
    progress: tuple[tuple[float, str], ...]
    # What it kept with ctx.checkpoint, oldest first; the next attempt would be given the last.
    checkpoints: tuple[Any, ...] = ()
    # With SUCCESS: what it scheduled with ctx.schedule, in order; the payloads after their trip through JSON.
    scheduled: tuple[NewTask, ...] = ()
    # What it asked for with ctx.add_node, by label.
    added: Mapping[str, NewTask] = field(default_factory=dict)
    # With COMPLETE_LATER: how long it waits, and the token that the callback gave out.
    complete_within: timedelta | None = None
    completion_token: str = field(repr=False, default="")
    # With WAIT_FOR_EVENT: the keys of the events that it waits for, and how long.
    waits_for: tuple[str, ...] = ()
    wait_timeout: timedelta | None = None
    # With WAIT_FOR_EVENT: by key, why the value that was there is not of its `type`. It waits for another.
    refused_events: Mapping[str, str] = field(default_factory=dict)
    # What it made with ctx.event_address, whatever the outcome, in order. They lead nowhere: give `events` to answer.
    event_addresses: tuple[MadeAddress, ...] = ()
    # What it kept with ctx.keep, whatever the outcome, in order; each can be read.
    kept: tuple[AttachmentUse, ...] = ()


def run(  # noqa: PLR0913 (each is something that a test may say of the attempt)
    app: App,
    name: str,
    payload: object = None,
    *,
    attempt: int = 1,
    fence: int | None = None,
    priority: Priority = Priority.NORMAL,
    due_at: datetime | None = None,
    tick_at: datetime | None = None,
    cancelled: bool = False,
    checkpoint: object = None,
    results: Mapping[str, object] | None = None,
    events: Mapping[str, object] | None = None,
    run_async: RunAsync | None = None,
    report: Callable[[float, str], object] = lambda *_: None,
) -> TestRun:
    """Run the callback of lambda `name` once and return what came of it.

    The payload is encoded, decoded and checked as it would be on its way through Duly. `cancelled=True`: somebody asked
    for its cancellation before it started. `tick_at`: the tick of a time table that scheduled it. `checkpoint`: what an
    attempt before kept. `results`: of the nodes before it in its graph, by label. `events`: the values of events that are there when it waits
    for them (`ctx.wait_for`), by key; a list has several events of a key, and TIMED_OUT stands for one that does not come in time. Where one lacks, the
    outcome is WAIT_FOR_EVENT. Exceptions of the callback are outcomes here
    as they are there (their traceback is in the log). `max_runtime` is not enforced. Attachments, such as those of the payload, are
    stored in memory; those of the result can be read.

    `run_async` runs an async callback's coroutine; None: on a loop and in a thread of its own. `report` is called with each
    progress told. A callback with `batch` gets a batch of one.

    Raises UnknownLambdaError, EncodingError and PayloadTooLargeError where `schedule` would.
    """
    prepared = _Prepared(
        app,
        name,
        payload,
        attempt=attempt,
        fence=fence,
        priority=priority,
        due_at=due_at,
        tick_at=tick_at,
        checkpoint=checkpoint,
        results=results,
        report=report,
    )
    prepared.context.codec = codec = prepared.callback.codec
    prepared.context.waits_look_in(_events(events or {}, name, codec))
    if cancelled:
        prepared.context.request_cancel()
    callback, run_async = prepared.callback, run_async or _run_async
    if callback.batch is not None:
        (result,) = invoke_batch.run_batch(callback, [prepared.task], [prepared.context], run_async)
    else:
        result = invoke.run(callback, prepared.task, prepared.context, run_async)
    return prepared.as_run(result)


def run_batch(
    app: App,
    name: str,
    payloads: Sequence[object],
    *,
    attempt: int = 1,
    cancelled: Collection[int] = (),
    run_async: RunAsync | None = None,
) -> list[TestRun]:
    """Run the callback of lambda `name`, which has `batch`, once for all of these payloads; return what came of each.

    `cancelled`: the places of payloads whose cancellation was asked for. Otherwise as `run`. A batch larger than the lambda's is run all the same.

    Raises ValueError if the lambda takes no batches.
    """
    prepared = [_Prepared(app, name, payload, attempt=attempt) for payload in payloads]
    for place in cancelled:
        prepared[place].context.request_cancel()
    if not prepared:
        return []
    callback = prepared[0].callback
    if callback.batch is None:
        raise ValueError(f"{name!r} takes one task a call: it has no batch=; use testing.run")
    tasks, contexts = [each.task for each in prepared], [each.context for each in prepared]
    results = invoke_batch.run_batch(callback, tasks, contexts, run_async or _run_async)
    return [each.as_run(result) for each, result in zip(prepared, results, strict=True)]


class _Prepared:
    """One attempt before it runs, and what it does beside returning."""

    def __init__(
        self,
        app: App,
        name: str,
        payload: object,
        *,
        attempt: int = 1,
        fence: int | None = None,
        priority: Priority = Priority.NORMAL,
        due_at: datetime | None = None,
        tick_at: datetime | None = None,
        checkpoint: object = None,
        results: Mapping[str, object] | None = None,
        report: Callable[[float, str], object] = lambda *_: None,
    ) -> None:
        if (callback := app.callbacks.get(name)) is None:
            raise UnknownLambdaError(
                f"the app has no lambda {name!r}; it has: {', '.join(app.callbacks) or 'none'}"
            )
        self.callback = callback
        self._files = files = _Files(callback.codec)
        data, encoding = files.encode(payload, task_pb2.ATTACHMENT_ROLE_INPUT)
        if len(data) > (limit := callback.policy.payload_limit or DEFAULT_LIMIT_BYTES):
            raise PayloadTooLargeError(f"the payload has {len(data)} bytes, the limit of {name!r} is {limit}")
        task = self.task = hsc_pb2.ClaimedTask(
            claim=hsc_pb2.Claim(task_id=new_task_id().bytes, token=bytes(16)),
            priority=task_pb2.Priority.ValueType(priority),
            payload=data,
            payload_encoding=encoding,
            attempt=attempt,
            fence=attempt if fence is None else fence,
            due_at=to_timestamp(aware("due_at", due_at or datetime.now(UTC))),
            max_runtime=to_duration(callback.policy.max_runtime or _HOUR),
            tick_at=to_timestamp(aware("tick_at", tick_at)) if tick_at is not None else None,
        )
        setattr(task, "lambda", name)
        task.checkpoint, _ = encode(checkpoint)
        if results is not None:
            _set_results(task, results, files)
        self._told: list[tuple[float, str]] = []
        self._kept: list[Any] = []
        self._report = report
        self.context = TaskContext.for_task(task, self._note_progress, self._keep, files)

    def _note_progress(self, fraction: float, note: str) -> None:
        self._told.append((fraction, note))
        self._report(fraction, note)

    def _keep(self, _task_id: bytes, data: bytes) -> None:
        self._kept.append(_checkpoint(data, self.task, self.callback.codec))

    def as_run(self, result: hsc_pb2.TaskResult) -> TestRun:
        """Return what came of it."""
        codec, token = self.callback.codec, self.context.completion
        return _as_run(result, self._told, self._kept, codec, self._files, token)


class _Frontend:
    """What a Frontend answers to one attempt, in memory."""

    def __init__(self, attachments: MemoryService) -> None:
        self._attachments = attachments
        self.calls_at_a_time = attachments.calls_at_a_time
        self.addresses: list[MadeAddress] = []

    def check(self) -> None:
        """Nobody stops it."""

    def call(self, method: Method[Response], request: Any) -> Response:
        """Answer a request."""
        if method.name != CREATE.name:
            return self._attachments.call(method, request)
        response: Any = method.response()
        for asked in request.addresses:
            token = secrets.token_urlsafe(32)
            url = f"https://duly.test/events/{token}"
            self.addresses.append(MadeAddress(asked.key, asked.title, url))
            lifetime = to_timedelta(asked.expires_in) if asked.HasField("expires_in") else _WEEK
            response.results.add(token=token, url=url, expires_at=to_timestamp(datetime.now(UTC) + lifetime))
        answer: Response = response
        return answer


class _Files:
    """The attachments of one attempt, in memory."""

    def __init__(self, codec: Codec | None) -> None:
        self._service = MemoryService()
        self.frontend = _Frontend(self._service)
        self._codec = codec

    def for_task(self, _task_id: bytes) -> _Frontend:
        return self.frontend

    def origin(self) -> Origin:
        return Origin("", self._service, self._codec)

    def encode(
        self, value: object, role: task_pb2.AttachmentRole.ValueType
    ) -> tuple[bytes, task_pb2.Encoding.ValueType]:
        encoded = encode_with(value, role, lambda local: upload(self._service, "", local, self._codec))
        return encoded.data, encoded.encoding

    def decode(self, data: bytes, encoding: int) -> Any:
        if encoding == task_pb2.ENCODING_ATTACHMENT:
            attachment, encoding = whole_of(data, self.origin())
            data = attachment.read()
        return decode(data, encoding, self.origin())

    def kept(self, uses: Iterable[task_pb2.AttachmentUse]) -> tuple[AttachmentUse, ...]:
        found = [
            AttachmentUse.from_proto(use, "") for use in uses if use.role != task_pb2.ATTACHMENT_ROLE_RESULT
        ]
        for each in found:
            each.attachment.bind(self.origin())
        return tuple(found)


def _set_results(task: hsc_pb2.ClaimedTask, results: Mapping[str, object], files: _Files) -> None:
    """Make the task a node of a graph; its predecessors have succeeded with these results."""
    task.graph.graph_id = new_task_id().bytes
    for label, value in results.items():
        data, encoding = files.encode(value, task_pb2.ATTACHMENT_ROLE_RESULT)
        task.graph.predecessors.add(
            label=label,
            task_id=new_task_id().bytes,
            status=task_pb2.TASK_STATUS_SUCCESS,
            result=data,
            result_encoding=encoding,
        )


def _checkpoint(data: bytes, task: hsc_pb2.ClaimedTask, codec: Codec | None) -> Any:
    return decode(*reveal(codec, data, encoding_of_checkpoint(data), checkpoint_of(task.claim.task_id)))


def _as_run(
    result: hsc_pb2.TaskResult,
    told: list[tuple[float, str]],
    kept: list[Any],
    codec: Codec | None,
    files: _Files,
    completion_token: str,
) -> TestRun:
    bound_to = result_of(result.claim.task_id)
    return TestRun(
        outcome=Outcome(result.outcome),
        result=files.decode(*reveal(codec, result.result, result.result_encoding, bound_to)),
        failure_kind=FailureKind(result.failure_kind) if result.failure_kind else None,
        failure_message=result.failure_message,
        traceback=result.traceback,
        retry_after=result.retry_after.ToTimedelta() if result.HasField("retry_after") else None,
        progress=tuple(told),
        checkpoints=tuple(kept),
        scheduled=tuple(_as_new_task(child, codec, files) for child in result.children),
        added={node.label: _as_new_task(node.task, codec, files) for node in result.nodes},
        complete_within=result.complete_within.ToTimedelta() if result.HasField("complete_within") else None,
        completion_token=completion_token,
        event_addresses=tuple(files.frontend.addresses),
        kept=files.kept(result.attachments),
        waits_for=tuple(result.event_wait.keys),
        refused_events={each.key: each.reason for each in result.event_wait.refused},
        wait_timeout=to_timedelta(result.event_wait.timeout) if result.HasField("event_wait") else None,
    )


def _events(given: Mapping[str, object], lambda_name: str, codec: Codec | None) -> Lookup:
    """Return what hands out events in the order in which the callback waits for them."""
    left = {key: [*values] if isinstance(values, list) else [values] for key, values in given.items()}
    order = [*left]

    def take(_name: str, keys: Sequence[str], needs_all: bool) -> list[hsc_pb2.ReceivedEvent]:  # noqa: FBT001
        there = [key for key in order if key in keys and left[key]]
        if len(there) < (len(keys) if needs_all else 1):
            return []
        return [_event(key, left[key].pop(0)) for key in (there if needs_all else there[:1])]

    def _event(key: str, value: object) -> hsc_pb2.ReceivedEvent:
        if value is TIMED_OUT:
            return hsc_pb2.ReceivedEvent(timed_out=True)
        bound_to = event_of(namespace_of(lambda_name), key)
        data, encoding = protect(codec, encode(value), bound_to, key)
        return hsc_pb2.ReceivedEvent(
            key=key, value=data, value_encoding=encoding, sent_at=to_timestamp(datetime.now(UTC))
        )

    return take


def _as_new_task(child: frontend_pb2.NewTask, codec: Codec | None, files: _Files) -> NewTask:
    lambda_name = getattr(child, "lambda")
    return NewTask(
        lambda_name,
        files.decode(*reveal(codec, child.payload, child.payload_encoding, payload_of(lambda_name))),
        Priority(child.priority),
        at=to_datetime(child.scheduled_at) if child.HasField("scheduled_at") else None,
        delay=to_timedelta(child.delay) if child.HasField("delay") else None,
        expires_at=to_datetime(child.expires_at) if child.HasField("expires_at") else None,
        **{name: getattr(child, name) for name in LABELS},
    )


def _run_async(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on a loop of its own, in a thread: an async test has a loop running in this one."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(copy_context().run, asyncio.run, coroutine).result()
