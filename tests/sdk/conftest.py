# ruff: noqa: N802 (gRPC names a servicer's methods)
"""A Frontend that answers as a test tells it to, behind a real gRPC server."""

import asyncio
from collections import deque
from datetime import timedelta

import grpc
import pytest

import duly
from duly_core.rpc.call_streams import CallStreams
from duly_wire.v1 import frontend_pb2, frontend_pb2_grpc, registry_pb2, registry_pb2_grpc, task_pb2


class ScriptedFrontend(frontend_pb2_grpc.FrontendServiceServicer, registry_pb2_grpc.RegistryServiceServicer):
    """Records every request; answers success, unless `failures` or `item_errors` say otherwise."""

    def __init__(self):
        self.address = ""
        self.requests = []
        # Status codes to answer the next requests with, before any succeeds.
        self.failures = deque()
        self.words = "as the test said"
        # What to answer for a lambda's tasks instead of writing them.
        self.item_errors = {}
        self.tasks = {}
        # Whether ScheduleStream is served, and what served the streams that were opened.
        self.serves_streams = False
        self.streams = []
        # A request waits for this, once it is recorded; `arrived` tells that one was.
        self.open = asyncio.Event()
        self.open.set()
        self.arrived = asyncio.Condition()

    async def until_arrived(self, count):
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.requests) >= count)

    async def _admit(self, request, context):
        self.requests.append(request)
        async with self.arrived:
            self.arrived.notify_all()
        await self.open.wait()
        if self.failures:
            code, *trailer = self.failures.popleft()
            more = {"trailing_metadata": tuple(trailer)} if trailer else {}
            await context.abort(code, self.words, **more)

    async def Schedule(self, request, context):
        await self._admit(request, context)
        return frontend_pb2.ScheduleResponse(results=[self._schedule(task) for task in request.tasks])

    async def ScheduleStream(self, requests, context):
        await self.serve_stream(requests, context)

    async def serve_stream(self, _requests, context):
        if not self.serves_streams:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no such method")
        timeout = timedelta(seconds=10)
        stream = CallStreams(
            self, {"schedule": "Schedule"}, frontend_pb2.ScheduleStreamResponse, timeout, None
        )
        self.streams.append(stream)
        await stream.serve(context)

    def _schedule(self, task):
        if error := self.item_errors.get(getattr(task, "lambda")):
            return frontend_pb2.ScheduleResult(error=error)
        return frontend_pb2.ScheduleResult(
            task_id=task.task_id or f"task-of-{task.idempotency_key}", created=True
        )

    async def GetTask(self, request, context):
        await self._admit(request, context)
        return frontend_pb2.GetTaskResponse(results=self._results(request))

    async def WaitTask(self, request, context):
        await self._admit(request, context)
        results = self._results(request)
        # As if the time had been waited for: each look finds the next status of the script.
        for task in self.tasks.values():
            if isinstance(task, deque) and len(task) > 1:
                task.popleft()
        return frontend_pb2.WaitTaskResponse(results=results)

    def _results(self, request):
        results = []
        for task_id in request.task_ids:
            if (task := self.tasks.get(task_id)) is None:
                error = task_pb2.ItemError(
                    code=task_pb2.ERROR_CODE_NOT_FOUND, message="there is no such task"
                )
                results.append(frontend_pb2.GetTaskResult(error=error))
            else:
                results.append(frontend_pb2.GetTaskResult(task=task[0] if isinstance(task, deque) else task))
        return results

    async def ListTasks(self, request, context):
        await self._admit(request, context)
        start = int(request.page_token or 0)
        end = start + request.page_size
        tasks = list(self.tasks.values())
        token = str(end) if end < len(tasks) else ""
        return frontend_pb2.ListTasksResponse(tasks=tasks[start:end], next_page_token=token)

    async def CancelTask(self, request, context):
        await self._admit(request, context)
        final = task_pb2.ItemError(code=task_pb2.ERROR_CODE_ALREADY_FINAL, message="it has ended")
        return frontend_pb2.CancelTaskResponse(
            results=[
                frontend_pb2.CancelTaskResult(error=final)
                if task_id == "ended"
                else frontend_pb2.CancelTaskResult(status=task_pb2.TASK_STATUS_CANCELLED)
                for task_id in request.task_ids
            ]
        )

    async def ListLambdas(self, request, context):
        await self._admit(request, context)
        declared = registry_pb2.Lambda(name="mail.send", owner="team-mail", max_attempts=10)
        registered = registry_pb2.RegisteredLambda()
        getattr(registered, "lambda").CopyFrom(declared)
        return registry_pb2.ListLambdasResponse(lambdas=[registered])


def proto_task(task_id, status=task_pb2.TASK_STATUS_SUCCESS, **fields):
    task = task_pb2.Task(task_id=task_id, status=status, priority=task_pb2.PRIORITY_NORMAL, **fields)
    setattr(task, "lambda", "mail.send")
    return task


@pytest.fixture
def make_task():
    return proto_task


@pytest.fixture
async def frontend():
    scripted = ScriptedFrontend()
    server = grpc.aio.server()
    frontend_pb2_grpc.add_FrontendServiceServicer_to_server(scripted, server)
    registry_pb2_grpc.add_RegistryServiceServicer_to_server(scripted, server)
    scripted.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    yield scripted
    scripted.open.set()
    await server.stop(None)


@pytest.fixture
async def client(frontend):
    async with duly.AsyncClient(frontend.address) as opened:
        yield opened
