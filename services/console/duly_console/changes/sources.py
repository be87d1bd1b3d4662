"""Long polls that tell what happens to one task or one graph."""

import asyncio
import os
import random
from collections.abc import AsyncIterator
from datetime import timedelta

import grpc

from duly_console.changes.activity import AWAY
from duly_console.changes.streams import Signal, Stream
from duly_console.changes.subjects import Subject
from duly_console.frontend_calls import FrontendCalls
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import frontend_pb2, graphs_pb2, task_pb2, watches_pb2

_HOLD = timedelta(seconds=20)
"""How long a poll waits for something to happen."""
_KEEP = timedelta(minutes=1)
"""A watch is forgotten so long after its page was closed. Until then the ends of all tasks look for it."""
_MORE = 5.0
"""Seconds that a poll may take longer than it waits."""
_PAUSE = 0.1
_FIRST_RETRY, _LAST_RETRY = 1.0, 15.0


async def tell_of(subject: Subject, stream: Stream, calls: FrontendCalls) -> None:
    """Tell a stream whenever something happens, until nothing can happen any more.

    A Frontend that does not answer is told of once, and asked again and again. A token that is no longer valid ends the
    stream without a word: the page opens another, and a session with an identity provider has a new token then.
    """
    patient = calls.within(_HOLD.total_seconds() + _MORE)
    failures = 0
    while True:
        try:
            async for _ in (
                _task(subject.id, patient) if subject.kind == "tasks" else _graph(subject.id, patient)
            ):
                failures = 0
                stream.tell(Signal.CHANGED)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                stream.end()
                return
            if error.code() not in AWAY:
                break
            failures += 1
            if failures == 1:
                stream.tell(Signal.AWAY)
            pause = min(_LAST_RETRY, _FIRST_RETRY * 2 ** min(failures - 1, 10))
            await asyncio.sleep(pause * random.uniform(0.75, 1.25))  # noqa: S311 (no secret)
        else:
            break
    stream.tell(Signal.DONE)


async def _task(task_id: str, calls: FrontendCalls) -> AsyncIterator[None]:
    """Yield when a task ends: a poll of its end costs the paths of tasks nothing."""
    request = frontend_pb2.WaitTaskRequest(
        task_ids=[task_id], timeout=to_duration(_HOLD), view=task_pb2.TASK_VIEW_BASIC
    )
    while True:
        answer: frontend_pb2.WaitTaskResponse = await calls(calls.stubs.frontend.WaitTask, request)
        if answer.all_final:
            yield
            return
        await asyncio.sleep(_PAUSE)


async def _graph(graph_id: str, calls: FrontendCalls) -> AsyncIterator[None]:
    """Yield when runs and tasks of a graph end, by a watch of this graph only."""
    of_graph = graphs_pb2.GetGraphRequest(graph_id=graph_id, without_nodes=True)
    begin = watches_pb2.WatchRequest(watch_id=os.urandom(16), graph_id=graph_id, keep_for=to_duration(_KEEP))
    begun: watches_pb2.WatchResponse = await calls(calls.stubs.watches.Watch, begin)
    if begun.error.code:
        return
    yield  # what happened before is not told
    read: graphs_pb2.GetGraphResponse = await calls(calls.stubs.graphs.GetGraph, of_graph)
    if read.error.code or read.graph.status != graphs_pb2.GRAPH_STATUS_RUNNING:
        return
    after = begun.position
    while True:
        request = watches_pb2.WatchRequest(
            after=after, graph_id=graph_id, keep_for=to_duration(_KEEP), wait=to_duration(_HOLD)
        )
        answer: watches_pb2.WatchResponse = await calls(calls.stubs.watches.Watch, request)
        if answer.error.code == task_pb2.ERROR_CODE_WATCH_LOST:
            async for _ in _graph(graph_id, calls):
                yield
            return
        if answer.error.code:
            return
        after = answer.position
        if answer.events:
            yield
        if any(each.kind == watches_pb2.TASK_EVENT_KIND_GRAPH_FINISHED for each in answer.events):
            return
        await asyncio.sleep(_PAUSE)
