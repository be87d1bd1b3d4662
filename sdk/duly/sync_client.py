"""The client for programs without an event loop: a thin face on AsyncClient.

The loop runs in one daemon thread of the client's own; each method is made from its namesake, which it runs
there. Only `schedule` has a shorter way: a call that is made while no other is goes out from the caller's own
thread, without a switch of threads.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, Unpack, overload

import grpc

from duly.attachments.attachment import AttachmentsInsideError
from duly.callbacks import tracing
from duly.callbacks.codec import Codec
from duly.callbacks.lambda_of import (
    Payload,
    Result,
    ScheduleOptions,
    Taking,
    TakingLater,
    TakingNothing,
    TakingNothingLater,
    name_of,
)
from duly.client import AsyncClient
from duly.errors import ClosedError, PayloadTooLargeError
from duly.graphs.calls import GraphBlock
from duly.tasks.blocking_schedule import BlockingSchedule
from duly.tasks.handle import Handle, TypedTask, check_result_type, handle_of
from duly.tasks.new_task import ScheduledTask, scheduled_task
from duly.tasks.reads import TaskRef
from duly.tasks.scheduling import receipt
from duly.tasks.task import Task
from duly.transport.after_fork import keep_in_children
from duly.transport.blocking import Blocking, Value, blocking, iterating, watching
from duly.transport.caller import DEFAULT_TIMEOUT, seconds

_LAST_EVENTS_S = 0.02
"""Seconds that a client's loop lives on after it has disconnected."""


class Client(Blocking):
    """Schedules tasks and follows them, through one Frontend; any threads may share one client.

        with duly.Client() as client:
            task = client.schedule("mail.send", {"to": "ann@example.org"})
            print(client.wait(task).result)

    Works as soon as it is made; `close` it, or use `with`. A process that forks makes no client before that.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        token: str | Callable[[], str] | None = None,
        unreachable_after: timedelta | None = None,
        codec: Codec | None = None,
        zone: str | None = None,
    ) -> None:
        """Name the Frontend, as for AsyncClient."""
        self._client = AsyncClient(
            address,
            credentials=credentials,
            token=token,
            unreachable_after=unreachable_after,
            codec=codec,
            zone=zone,
        )
        self._process = os.getpid()
        keep_in_children(self)
        self._direct = BlockingSchedule(
            self._client.address, self._client.credentials, self._client.reach, self._client.zone
        )
        self._closed = False
        # Held to give the loop work, and to close: the loop drops silently what comes after its end. A signal
        # handler may use the client, too.
        self._handing_over = threading.RLock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="duly-client", daemon=True)
        self._thread.start()
        self._run(self._client.open())

    @property
    def address(self) -> str:
        """Where the Frontend is."""
        return self._client.address

    def close(self) -> None:
        """Wait for the schedules under way, then disconnect. Closing twice does no harm, nor in a forked child."""
        if self._process != os.getpid():  # the child has neither our thread nor our connections
            return
        with self._handing_over:
            if self._closed:
                return
            self._closed = True
            closed = asyncio.run_coroutine_threadsafe(self._disconnect(), self._loop)
        self._direct.close()
        closed.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @overload
    def schedule(
        self,
        lambda_name: str,
        payload: Any = None,
        *,
        result_type: type[Result],
        **options: Unpack[ScheduleOptions],
    ) -> Handle[Result]: ...
    @overload
    def schedule(
        self,
        lambda_name: str,
        payload: Any = None,
        *,
        result_type: None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduledTask: ...
    @overload
    def schedule(
        self,
        lambda_name: TakingNothingLater[Result],
        payload: None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Handle[Result]: ...
    @overload
    def schedule(
        self, lambda_name: TakingNothing[Result], payload: None = None, **options: Unpack[ScheduleOptions]
    ) -> Handle[Result]: ...
    @overload
    def schedule(
        self, lambda_name: TakingLater[Payload, Result], payload: Payload, **options: Unpack[ScheduleOptions]
    ) -> Handle[Result]: ...
    @overload
    def schedule(
        self, lambda_name: Taking[Payload, Result], payload: Payload, **options: Unpack[ScheduleOptions]
    ) -> Handle[Result]: ...
    def schedule(
        self,
        lambda_name: str | Callable[..., Any],
        payload: Any = None,
        *,
        timeout: timedelta = DEFAULT_TIMEOUT,
        result_type: Any = None,
        **options: Any,
    ) -> Any:
        """Schedule a task; see AsyncClient.schedule. For many at once, `schedule_many` is far faster."""
        check_result_type(result_type)
        written = self._schedule(lambda_name, payload, timeout, options)
        return handle_of(written, lambda_name, result_type)

    def _schedule(
        self,
        lambda_name: str | Callable[..., Any],
        payload: Any,
        timeout: timedelta,
        options: dict[str, Any],
    ) -> ScheduledTask:
        new, patience = scheduled_task(lambda_name, payload, options), seconds(timeout)
        try:
            task = new.to_proto(self._client.codec)
        except (AttachmentsInsideError, PayloadTooLargeError):  # what has to be uploaded goes the longer way
            return self._longer_way(lambda_name, payload, timeout, options)
        self._check_usable()
        began_at = time.monotonic()
        began_ns = time.time_ns() if tracing.active is not None else 0
        result = self._direct.schedule(task, patience)
        if result is not None:
            try:
                return receipt(task, result, began_ns)
            except PayloadTooLargeError:
                return self._longer_way(lambda_name, payload, timeout, options)
        left = max(0.0, patience - (time.monotonic() - began_at))
        return self._run(self._client.send(task, timedelta(seconds=left)))

    def _longer_way(
        self, lambda_name: str | Callable[..., Any], payload: Any, timeout: timedelta, options: dict[str, Any]
    ) -> ScheduledTask:
        written: ScheduledTask = self._run(
            self._client.schedule(name_of(lambda_name), payload, timeout=timeout, **options)
        )
        return written

    fetch = blocking(AsyncClient.fetch)
    read_attachment = blocking(AsyncClient.read_attachment)
    attachments = blocking(AsyncClient.attachments)
    output = iterating(AsyncClient.output, AsyncClient.output_pages)
    watch = watching(AsyncClient.watch)

    schedule_many = blocking(AsyncClient.schedule_many, drawn="tasks")

    @overload
    def get(self, task: Handle[Result]) -> TypedTask[Result]: ...
    @overload
    def get(self, task: TaskRef) -> Task: ...
    def get(self, task: TaskRef) -> Task:
        """Return a task as it stands now; see AsyncClient.get."""
        return self._run(self._client.get(task))

    get_many = blocking(AsyncClient.get_many, drawn="tasks")

    @overload
    def wait(
        self, task: Handle[Result], timeout: timedelta | None = None, *, raise_on_failure: bool = False
    ) -> TypedTask[Result]: ...
    @overload
    def wait(
        self, task: TaskRef, timeout: timedelta | None = None, *, raise_on_failure: bool = False
    ) -> Task: ...
    def wait(
        self, task: TaskRef, timeout: timedelta | None = None, *, raise_on_failure: bool = False
    ) -> Task:
        """Return the task once it is final; see AsyncClient.wait."""
        return self._run(self._client.wait(task, timeout, raise_on_failure=raise_on_failure))

    wait_many = blocking(AsyncClient.wait_many, drawn="tasks")
    list = iterating(AsyncClient.list, AsyncClient.list_pages)
    lambdas = blocking(AsyncClient.lambdas)
    get_lambda = blocking(AsyncClient.get_lambda)
    transfer_lambda = blocking(AsyncClient.transfer_lambda)
    roll_back_lambda = blocking(AsyncClient.roll_back_lambda)
    ramp_lambda = blocking(AsyncClient.ramp_lambda)
    end_ramp = blocking(AsyncClient.end_ramp)
    delete_lambda = blocking(AsyncClient.delete_lambda)
    restore_lambda = blocking(AsyncClient.restore_lambda)
    set_fair_weights = blocking(AsyncClient.set_fair_weights)
    fair_keys = blocking(AsyncClient.fair_keys)
    register = blocking(AsyncClient.register)

    update = blocking(AsyncClient.update)
    update_many = blocking(AsyncClient.update_many, drawn="updates")
    cancel = blocking(AsyncClient.cancel)
    cancel_many = blocking(AsyncClient.cancel_many, drawn="tasks")
    cancel_where = blocking(AsyncClient.cancel_where)
    purge = blocking(AsyncClient.purge)

    complete = blocking(AsyncClient.complete)
    fail = blocking(AsyncClient.fail)

    dead_letters = iterating(AsyncClient.dead_letters, AsyncClient.dead_letter_pages)
    redrive = blocking(AsyncClient.redrive)
    redrive_many = blocking(AsyncClient.redrive_many, drawn="tasks")
    redrive_where = blocking(AsyncClient.redrive_where)

    send_event = blocking(AsyncClient.send_event)
    send_events = blocking(AsyncClient.send_events, drawn="events")
    event_address = blocking(AsyncClient.event_address)
    get_event_key = blocking(AsyncClient.get_event_key)
    event_keys = iterating(AsyncClient.event_keys, AsyncClient.event_key_pages)

    get_session = blocking(AsyncClient.get_session)
    sessions = iterating(AsyncClient.sessions, AsyncClient.session_pages)
    unblock_session = blocking(AsyncClient.unblock_session)
    unblock_sessions = blocking(AsyncClient.unblock_sessions, drawn="sessions")

    schedule_graph = blocking(AsyncClient.schedule_graph)
    get_graph = blocking(AsyncClient.get_graph)
    wait_graph = blocking(AsyncClient.wait_graph)
    cancel_graph = blocking(AsyncClient.cancel_graph)
    list_graphs = iterating(AsyncClient.list_graphs, AsyncClient.graph_pages)
    put_graph_definition = blocking(AsyncClient.put_graph_definition)
    get_graph_definition = blocking(AsyncClient.get_graph_definition)
    graph_definitions = blocking(AsyncClient.graph_definitions)
    run_graph = blocking(AsyncClient.run_graph)

    create_table = blocking(AsyncClient.create_table)
    change_table = blocking(AsyncClient.change_table)
    table = blocking(AsyncClient.table)
    tables = blocking(AsyncClient.tables)
    pause_table = blocking(AsyncClient.pause_table)
    resume_table = blocking(AsyncClient.resume_table)
    delete_table = blocking(AsyncClient.delete_table)
    backfill_table = blocking(AsyncClient.backfill_table)

    calendars = blocking(AsyncClient.calendars)
    calendar = blocking(AsyncClient.calendar)
    put_calendar = blocking(AsyncClient.put_calendar)
    delete_calendar = blocking(AsyncClient.delete_calendar)

    resources = blocking(AsyncClient.resources)
    pools = blocking(AsyncClient.pools)
    autoscaler_leader = blocking(AsyncClient.autoscaler_leader)
    put_pool = blocking(AsyncClient.put_pool)
    delete_pool = blocking(AsyncClient.delete_pool)
    put_gate = blocking(AsyncClient.put_gate)
    gate_hits = blocking(AsyncClient.gate_hits)
    delete_gate = blocking(AsyncClient.delete_gate)
    gates = blocking(AsyncClient.gates)
    put_breaker = blocking(AsyncClient.put_breaker)
    delete_breaker = blocking(AsyncClient.delete_breaker)
    breakers = blocking(AsyncClient.breakers)
    put_resource = blocking(AsyncClient.put_resource)
    delete_resource = blocking(AsyncClient.delete_resource)
    backlog = blocking(AsyncClient.backlog)

    settings = blocking(AsyncClient.settings)
    set_setting = blocking(AsyncClient.set_setting)
    set_settings = blocking(AsyncClient.set_settings)
    reset_settings = blocking(AsyncClient.reset_settings, drawn="names")

    explain = blocking(AsyncClient.explain)
    problems = blocking(AsyncClient.problems)
    notification_targets = blocking(AsyncClient.notification_targets)
    test_notification_target = blocking(AsyncClient.test_notification_target)
    hosts = iterating(AsyncClient.hosts, AsyncClient.host_pages)
    services = blocking(AsyncClient.services)
    queues = iterating(AsyncClient.queues, AsyncClient.queue_pages)

    access = blocking(AsyncClient.access)
    sign_in_provider = blocking(AsyncClient.sign_in_provider)
    grants = blocking(AsyncClient.grants)
    add_grants = blocking(AsyncClient.add_grants, drawn="grants")
    remove_grants = blocking(AsyncClient.remove_grants, drawn="grants")
    create_token = blocking(AsyncClient.create_token)
    tokens = blocking(AsyncClient.tokens)
    revoke_tokens = blocking(AsyncClient.revoke_tokens, drawn="token_ids")
    reveal = blocking(AsyncClient.reveal)
    activity = blocking(AsyncClient.activity)
    service_levels = blocking(AsyncClient.service_levels)
    put_objective = blocking(AsyncClient.put_objective)
    delete_objective = blocking(AsyncClient.delete_objective)
    objectives = blocking(AsyncClient.objectives)
    search = blocking(AsyncClient.search)
    audit_events = iterating(AsyncClient.audit_events, AsyncClient.audit_event_pages)

    def graph(
        self,
        name: str,
        *,
        graph_id: str | None = None,
        fail_fast: bool = False,
        timeout: timedelta = DEFAULT_TIMEOUT * 6,
    ) -> GraphBlock:
        """Begin a graph, which is scheduled at the end of the block: all of it, or nothing.

            with client.graph("discovery") as g:
                first = g.task("ipmi.read", {"node": "n1"})
                g.task("report.send", after=first)
            client.wait_graph(g.graph_id)

        See AsyncClient.graph.
        """
        return GraphBlock(self.schedule_graph, name, graph_id, timeout, fail_fast=fail_fast)

    async def _disconnect(self) -> None:
        """Close, and end what other threads still wait for, so that they do not wait for ever."""
        await self._client.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        # what was cancelled ends in gRPC a moment later: for a loop that is closed by then, gRPC logs a traceback in another client's
        await asyncio.sleep(_LAST_EVENTS_S)

    def _check_usable(self) -> None:
        if self._closed or self._process != os.getpid():
            reason = "was closed" if self._closed else "was made before a fork: make clients after the fork"
            raise ClosedError(f"the client {reason}")

    def _run(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        """Run a coroutine on the client's loop and return its value, or raise what it raises."""
        try:
            self._check_usable()  # in a forked child the lock may be held for ever
            with self._handing_over:
                self._check_usable()
                future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except ClosedError:
            coroutine.close()
            raise
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ClosedError("the client was closed while this call was under way") from None
        except BaseException:
            # An interrupt ends the waiting here; the work there is not to go on without it.
            future.cancel()
            raise
