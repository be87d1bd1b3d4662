"""Traces tasks with OpenTelemetry. Needs `pip install 'duly[otel]'`.

Example:
    duly.otel.instrument()  # in client services, and in the module of the application
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING
from uuid import UUID

from duly.callbacks import tracing
from duly_wire.v1 import hsc_pb2

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace import (
        Link,
        NonRecordingSpan,
        SpanContext,
        SpanKind,
        Status,
        StatusCode,
        TraceFlags,
    )
except ImportError as error:
    raise ImportError("duly.otel needs the package opentelemetry-api: pip install 'duly[otel]'") from error

if TYPE_CHECKING:
    from duly.context import TaskContext

_SPAN_MASK = (1 << 64) - 1
_RATIO_BITS = 64
_FAILED = {
    hsc_pb2.OUTCOME_FATAL_FAILURE,
    hsc_pb2.OUTCOME_RETRIABLE_FAILURE,
    hsc_pb2.OUTCOME_CRASHED,
}


def instrument(tracer_provider: trace.TracerProvider | None = None, *, ratio: float = 1.0) -> None:
    """Trace what this process schedules, and the callbacks that it runs; a second call replaces the first.

    Args:
        tracer_provider: makes the spans; None: the global one.
        ratio: the part of tasks that are traced. Which ones follows from their ids: give clients and workers the same.

    Raises ValueError if the ratio is not between 0 and 1.
    """
    if not 0 <= ratio <= 1:
        raise ValueError(f"ratio: must be between 0 and 1, not {ratio}")
    tracing.active = _OpenTelemetry(trace.get_tracer("duly", tracer_provider=tracer_provider), ratio)


def uninstrument() -> None:
    """Trace nothing any more."""
    tracing.active = None


def trace_of(task_id: str, *, ratio: float = 1.0) -> SpanContext:
    """Return the context that all spans of a task have as their parent: its trace id is the task's id, without hyphens."""
    number = UUID(task_id).int
    drawn = int.from_bytes(sha256(number.to_bytes(16)).digest()[: _RATIO_BITS // 8])
    is_traced = drawn < ratio * (1 << _RATIO_BITS)
    flags = TraceFlags(TraceFlags.SAMPLED if is_traced else TraceFlags.DEFAULT)
    return SpanContext(number, number & _SPAN_MASK, is_remote=True, trace_flags=flags)


class _OpenTelemetry:
    """All attempts of a task are in one trace, which its id names: so nothing is stored or sent for it."""

    def __init__(self, tracer: trace.Tracer, ratio: float) -> None:
        self._tracer = tracer
        self._ratio = ratio

    def _within(self, task_id: str) -> Context:
        return trace.set_span_in_context(NonRecordingSpan(trace_of(task_id, ratio=self._ratio)), Context())

    def scheduled(self, lambda_name: str, task_id: str, began_ns: int) -> None:
        """Add a span to the task's trace, and links between it and the current span."""
        caller = trace.get_current_span()
        came_from = caller.get_span_context()
        span = self._tracer.start_span(
            f"schedule {lambda_name}",
            context=self._within(task_id),
            kind=SpanKind.PRODUCER,
            attributes={**_attributes(lambda_name, task_id), "messaging.operation.type": "send"},
            links=[Link(came_from)] if came_from.is_valid else [],
            start_time=began_ns,
        )
        caller.add_link(span.get_span_context(), {"duly.task_id": task_id})
        span.end()

    @contextmanager
    def running(
        self, lambda_name: str, context: TaskContext
    ) -> Iterator[Callable[[hsc_pb2.TaskResult], None]]:
        """Make a span of the task's trace the current one."""
        attributes: dict[str, str | int] = {
            **_attributes(lambda_name, context.task_id),
            "messaging.operation.type": "process",
            "duly.attempt": context.attempt,
            "duly.priority": context.priority.name.lower(),
        }
        with self._tracer.start_as_current_span(
            f"run {lambda_name}",
            context=self._within(context.task_id),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:

            def ended(result: hsc_pb2.TaskResult) -> None:
                outcome = hsc_pb2.Outcome.Name(result.outcome).removeprefix("OUTCOME_").lower()
                span.set_attribute("duly.outcome", outcome)
                if result.outcome in _FAILED:
                    span.set_status(Status(StatusCode.ERROR, result.failure_message))

            yield ended


def _attributes(lambda_name: str, task_id: str) -> dict[str, str]:
    return {
        "messaging.system": "duly",
        "messaging.destination.name": lambda_name,
        "messaging.message.id": task_id,
        "duly.task_id": task_id,
    }
