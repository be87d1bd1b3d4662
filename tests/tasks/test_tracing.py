"""OpenTelemetry spans from the client's call to each attempt, through the real store."""

import subprocess
import sys
from uuid import UUID

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import duly
import duly.otel
from duly.callbacks import invoke, tracing
from duly.context import TaskContext
from duly.testing import _run_async
from duly_core.results.store import set_results
from duly_core.tasks.task import Result
from duly_wire.v1 import hsc_pb2, task_pb2
from tests.fixtures.task_states import LAMBDA, SECOND

app = duly.App(owner="traced")
seen = []
"""Ids of the spans that were current in callbacks."""


@app.callback(LAMBDA)
def fail_once(payload, ctx):
    seen.append(trace.get_current_span().get_span_context().span_id)
    if ctx.attempt == 1:
        raise OSError("the printer is out of paper")


@app.callback("traced.parent")
async def schedule_another(payload, ctx):
    with trace.get_tracer("a library").start_as_current_span("inner"):
        ctx.schedule(LAMBDA, {"secret": "s3cret"})


@pytest.fixture
def exporter():
    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    duly.otel.instrument(provider)
    yield memory
    duly.otel.uninstrument()


@pytest.fixture
def tracer(exporter):
    return tracing.active._tracer


def hexadecimal(task_id):
    return UUID(task_id).int


async def run_next(task_states):
    """Claim what is due as a host does, run its callback, and write the result."""
    claimed = await task_states.take()
    task = hsc_pb2.ClaimedTask(
        claim=hsc_pb2.Claim(task_id=claimed.task_id, token=claimed.token),
        priority=task_pb2.Priority.ValueType(claimed.priority),
        payload=claimed.payload,
        payload_encoding=task_pb2.ENCODING_JSON,
        attempt=claimed.failures + claimed.crashes + 1,
    )
    setattr(task, "lambda", claimed.lambda_name)
    task.max_runtime.FromSeconds(60)
    context = TaskContext.for_task(task, lambda *_: None, lambda *_: None)
    result = invoke.run(app.callbacks[LAMBDA], task, context, _run_async)
    written = Result(
        claimed.task_id,
        claimed.token,
        duly.Outcome(result.outcome),
        failure_kind=result.failure_kind or None,
        failure_message=result.failure_message,
    )
    await set_results(task_states.store, [written])


async def test_a_task_is_one_trace_from_its_client_through_its_retries(
    task_states, client, clock, exporter, tracer
):
    await task_states.register()
    seen.clear()
    with tracer.start_as_current_span("request") as request:
        task = await client.schedule(LAMBDA, {"secret": "s3cret"})
    await run_next(task_states)
    await clock.tick(600 * SECOND)
    await run_next(task_states)

    spans = {
        (span.name, (span.attributes or {}).get("duly.attempt")): span
        for span in exporter.get_finished_spans()
    }

    scheduled, first, second = (
        spans[f"schedule {LAMBDA}", None],
        spans[f"run {LAMBDA}", 1],
        spans[f"run {LAMBDA}", 2],
    )
    assert {each.context.trace_id for each in (scheduled, first, second)} == {hexadecimal(task.task_id)}
    assert [link.context for link in scheduled.links] == [request.get_span_context()]
    assert [link.context.span_id for link in spans["request", None].links] == [scheduled.context.span_id]
    assert seen == [first.context.span_id, second.context.span_id]
    assert (first.status.status_code, first.attributes["duly.outcome"]) == (
        StatusCode.ERROR,
        "retriable_failure",
    )
    assert (second.status.status_code, second.attributes["duly.outcome"]) == (StatusCode.UNSET, "success")
    assert not any("s3cret" in span.to_json() for span in spans.values())


async def test_what_an_async_callback_does_and_schedules_is_linked_to_its_attempt(exporter):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    inner_tracer = provider.get_tracer("a library")
    global_tracer, trace.get_tracer = trace.get_tracer, lambda *_, **__: inner_tracer
    try:
        done = duly.testing.run(app, "traced.parent")
    finally:
        trace.get_tracer = global_tracer

    spans = {span.name: span for span in exporter.get_finished_spans()}
    run, inner, scheduled = spans["run traced.parent"], spans["inner"], spans[f"schedule {LAMBDA}"]
    assert done.outcome is duly.Outcome.SUCCESS
    assert inner.parent.span_id == run.context.span_id
    assert inner.context.trace_id == run.context.trace_id
    assert [link.context.span_id for link in scheduled.links] == [inner.context.span_id]
    assert scheduled.context.trace_id != run.context.trace_id


def test_of_a_task_all_spans_are_sampled_or_none_and_about_as_many_as_asked(exporter):
    ids = [str(UUID(int=0x019B5F0E_0000_7000_8000_000000000000 + number)) for number in range(2_000)]

    traced = [duly.otel.trace_of(each, ratio=0.25).trace_flags.sampled for each in ids]

    assert traced == [duly.otel.trace_of(each, ratio=0.25).trace_flags.sampled for each in ids]
    assert 400 < sum(traced) < 600
    assert all(duly.otel.trace_of(each).trace_flags.sampled for each in ids)
    assert not any(duly.otel.trace_of(each, ratio=0).trace_flags.sampled for each in ids)


@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan")])
def test_a_ratio_that_is_none_is_refused(ratio):
    before = tracing.active

    with pytest.raises(ValueError, match="between 0 and 1"):
        duly.otel.instrument(ratio=ratio)

    assert tracing.active is before


def test_without_the_call_nothing_of_opentelemetry_is_loaded():
    program = (
        "import sys, duly, duly.testing, duly.callbacks.invoke; from duly.callbacks import tracing;"
        "assert tracing.active is None; assert not [m for m in sys.modules if 'opentelemetry' in m]"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )

    assert done.returncode == 0, done.stderr
