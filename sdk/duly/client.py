"""The client for asyncio programs; `duly.Client` is its face for the others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias, Unpack, overload

import grpc

from duly.access.calls import AccessCalls
from duly.attachments.calls import AttachmentCalls
from duly.callbacks.codec import Codec
from duly.callbacks.lambda_of import Result
from duly.errors import DulyError, TaskFailedError, TaskNotFoundError
from duly.events.calls import EventCalls
from duly.explain.calls import ExplainCalls
from duly.fleet.activity_calls import InspectionCalls
from duly.fleet.calls import FleetCalls
from duly.gates.calls import GateCalls
from duly.graphs.calls import GraphCalls
from duly.lambdas import registration
from duly.lambdas.calls import LambdaCalls
from duly.limits.calls import ResourceCalls
from duly.pools.calls import PoolCalls
from duly.problems.calls import ProblemCalls
from duly.sessions.calls import SessionCalls
from duly.settings.calls import SettingCalls
from duly.slo.calls import ObjectiveCalls
from duly.task_output.calls import OutputCalls
from duly.tasks import dead_letters
from duly.tasks import reads as task_reads
from duly.tasks.completion_calls import CompletionCalls
from duly.tasks.dead_letters import Redrive
from duly.tasks.filters import DeadLetterFilter, DeadLetterListFilter, ListFilter, filtered
from duly.tasks.handle import Handle, TypedTask, typed_task
from duly.tasks.reads import TaskRef
from duly.tasks.schedule_calls import ScheduleCalls
from duly.tasks.scheduling import Scheduler
from duly.tasks.task import Task
from duly.tasks.update_calls import ChangeCalls
from duly.time_tables.calendars import CalendarCalls
from duly.time_tables.calls import TimeTableCalls
from duly.transport import error_mapping
from duly.transport.after_fork import check_no_fork
from duly.transport.caller import Caller, Reachability
from duly.transport.channel import resolve_address, resolve_zone
from duly.transport.client_part import only
from duly.transport.message_fields import wire_member
from duly.watches.calls import WatchCalls
from duly_wire.credentials import Credentials, check_secrecy, plaintext_is_allowed
from duly_wire.enums import TaskStatus
from duly_wire.v1 import frontend_pb2, task_pb2

if TYPE_CHECKING:
    from duly.callbacks.app import App

# Within the class `list` is a method, so these say what it would hide.
_Tasks: TypeAlias = list[Task]
_TasksOrNone: TypeAlias = list[Task | None]
_Strings: TypeAlias = list[str]
_StatusesOrErrors: TypeAlias = list[TaskStatus | DulyError]


class AsyncClient(
    ScheduleCalls,
    AttachmentCalls,
    OutputCalls,
    WatchCalls,
    ChangeCalls,
    CompletionCalls,
    EventCalls,
    SettingCalls,
    SessionCalls,
    GraphCalls,
    TimeTableCalls,
    CalendarCalls,
    ResourceCalls,
    PoolCalls,
    ObjectiveCalls,
    GateCalls,
    AccessCalls,
    LambdaCalls,
    ExplainCalls,
    ProblemCalls,
    FleetCalls,
    InspectionCalls,
):
    """Schedules tasks and follows them, through one Frontend.

        async with duly.AsyncClient() as client:
            task = await client.schedule("mail.send", {"to": "ann@example.org"})
            print((await client.wait(task)).result)

    One client serves any number of tasks of one event loop; `schedule` calls made at the same time
    travel together. Every method retries while the Frontend is unreachable, and then raises
    UnavailableError; sending twice never schedules twice.
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
        """Name the Frontend: "host:port", else the environment's DULY_ADDRESS, else 127.0.0.1:7401.

        Raises AddressError if it is invalid, CredentialsError if a file of the environment cannot be read, or if a token
        would be sent to another machine without TLS (DULY_RPC_ALLOW_PLAINTEXT=true allows it).
        `credentials`: for TLS, from `grpc.ssl_channel_credentials`; else the environment's DULY_RPC_CA_FILE (and
        DULY_RPC_CERT_FILE, DULY_RPC_KEY_FILE); else plain text.
        `token`: says who calls; else DULY_TOKEN, or the file of DULY_RPC_TOKEN_FILE. A function returns the token of now, without waiting
        long: each call asks it.
        `unreachable_after`: give up so soon where connections are refused, or the name is unknown, from the start.
        `codec`: encrypts payloads, and decrypts payloads and results; see `duly.encryption`.
        `zone`: where this program runs; else the environment's DULY_RPC_ZONE. Of several Frontends
        ("east=10.0.1.11:7401,west=10.0.2.11:7401") those of this zone get the calls while one of them serves.

        Raises ClosedError in a process that was forked after a client was made: gRPC does not work there.
        """
        check_no_fork()
        self.address = resolve_address(address)
        self.credentials = Credentials.resolve(credentials, token)
        check_secrecy(self.address, self.credentials, allow_plaintext=plaintext_is_allowed())
        self.reach = Reachability(unreachable_after)
        self.codec = codec
        self.zone = resolve_zone(zone)

    async def open(self) -> None:
        """Make ready for calls, on the running event loop. Connects with the first call."""
        if self._opened is None:
            caller = Caller(self.address, self.credentials, self.reach, self.codec, self.zone)
            self._opened = caller, Scheduler(caller)

    async def close(self) -> None:
        """Wait for the schedules under way, then disconnect. Closing twice does no harm."""
        if self._opened is not None:
            (caller, scheduler), self._opened = self._opened, None
            try:
                await scheduler.close()
            finally:
                await caller.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @overload
    async def get(self, task: Handle[Result]) -> TypedTask[Result]: ...
    @overload
    async def get(self, task: TaskRef) -> Task: ...
    async def get(self, task: TaskRef) -> Task:
        """Return a task as it stands now. Raises TaskNotFoundError."""
        (task_id,) = await task_reads.found_ids(self._caller, [task])
        (found,) = await task_reads.get_tasks(self._caller, [task_id])
        if found is None:
            raise task_reads.no_task(task_id)
        return typed_task(found, task)

    async def get_many(self, tasks: Iterable[TaskRef]) -> _TasksOrNone:
        """Return tasks as they stand now, in order; None for an unknown one."""
        found = await task_reads.of_each(
            self._caller, tasks, lambda ids: task_reads.get_tasks(self._caller, ids)
        )
        for each in found:
            if isinstance(each, DulyError) and not isinstance(each, TaskNotFoundError):
                raise each
        return [None if isinstance(each, DulyError) else each for each in found]

    @overload
    async def wait(
        self, task: Handle[Result], timeout: timedelta | None = None, *, raise_on_failure: bool = False
    ) -> TypedTask[Result]: ...
    @overload
    async def wait(
        self, task: TaskRef, timeout: timedelta | None = None, *, raise_on_failure: bool = False
    ) -> Task: ...
    async def wait(
        self, task: TaskRef, timeout: timedelta | None = None, *, raise_on_failure: bool = False
    ) -> Task:
        """Return the task once it is final: the Frontend is asked to answer when it is, not again and again.

        `timeout` None waits for ever, and through a Frontend's restart. Raises WaitTimeoutError, TaskNotFoundError, and, with
        `raise_on_failure`, TaskFailedError if it ended otherwise than in SUCCESS.
        """
        (ended,) = await self.wait_many([task], timeout, raise_on_failure=raise_on_failure)
        return typed_task(ended, task)

    async def wait_many(
        self, tasks: Iterable[TaskRef], timeout: timedelta | None = None, *, raise_on_failure: bool = False
    ) -> _Tasks:
        """Return the tasks, in order, once all are final; otherwise as `wait`."""
        ids = await task_reads.found_ids(self._caller, tasks)
        ended = await task_reads.wait_tasks(self._caller, ids, timeout)
        if raise_on_failure:
            for task in ended:
                if task.status is not TaskStatus.SUCCESS:
                    raise TaskFailedError(task)
        return ended

    async def cancel(self, task: TaskRef, *, kill: bool = False) -> TaskStatus:
        """Cancel a task and return its status now.

        CANCELLED: done. CLAIMED or PROCESSING: its callback has been asked to stop, which takes
        effect at its next heartbeat, if it heeds it. `kill`: the callback is ended even if it does not; a callback process
        that has to be killed for it gives the others in it a short time to end, and they run again, uncharged.
        Raises TaskFinalError, TaskNotFoundError.
        """
        return only(await self.cancel_many([task], kill=kill))

    async def cancel_many(self, tasks: Iterable[TaskRef], *, kill: bool = False) -> _StatusesOrErrors:
        """Cancel tasks, as `cancel` does; return for each, in order, its status now, or why it was not cancelled."""
        return await task_reads.of_each(self._caller, tasks, lambda ids: self._cancel(ids, kill=kill))

    async def _cancel(self, task_ids: Sequence[str], *, kill: bool) -> _StatusesOrErrors:
        caller = self._caller
        results: _StatusesOrErrors = []
        for ids in task_reads.in_chunks(task_ids):
            request = frontend_pb2.CancelTaskRequest(task_ids=ids, kill=kill)
            response = await caller.call(caller.frontend.CancelTask, request)
            results += [
                error_mapping.from_item(result.error)
                if result.HasField("error")
                else wire_member(TaskStatus, result.status)
                for result in response.results
            ]
        return results

    async def redrive(self, task: TaskRef) -> TaskStatus:
        """Let a dead letter (a task that ended as FATAL_FAILURE) run again at once, and return its status: NEW, or WAITING in its session.

        It has all its attempts before it. Raises NotADeadLetterError (also if it was redriven before),
        UnknownLambdaError, TaskNotFoundError.
        """
        return only(await self.redrive_many([task]))

    async def redrive_many(self, tasks: Iterable[TaskRef]) -> _StatusesOrErrors:
        """Let dead letters run again; return for each, in order, its status now, or why it was not redriven."""
        return await task_reads.of_each(
            self._caller, tasks, lambda ids: dead_letters.redrive_tasks(self._caller, ids)
        )

    async def redrive_where(
        self,
        *,
        rate: float | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        cause: str = "",
        **which: Unpack[DeadLetterFilter],
    ) -> Redrive:
        """Let all dead letters that the filters find run again, those that ended first before the others.

            await client.redrive_where(lambda_name="mail.send", failure_kinds=[duly.FailureKind.ATTEMPTS_EXHAUSTED], rate=50)

        - `rate`: so many a second become due, from now on; None is all at once. Their times are written
          with them, so nobody has to stay for it.
        - `limit`: redrive at most so many. `dry_run`: only count.
        - `cause`: only those that failed by it: the `fingerprint` of a `ProblemCause`.

        What fails again meanwhile is not redriven again. Raises InvalidTaskError, UnavailableError (a note
        tells how many were redriven before).
        """
        request = filtered(frontend_pb2.RedriveTasksRequest(cause=cause), which, DeadLetterFilter)
        return await dead_letters.redrive_where(self._caller, request, rate, limit, dry_run=dry_run)

    async def dead_letters(
        self, *, page_size: int = 100, **which: Unpack[DeadLetterListFilter]
    ) -> AsyncIterator[Task]:
        """Yield dead letters, newest first, without their payloads; what is left out is not filtered by."""
        async for page in self.dead_letter_pages(page_size=page_size, **which):
            for task in page:
                yield task

    def dead_letter_pages(
        self, *, page_size: int = 100, **which: Unpack[DeadLetterListFilter]
    ) -> AsyncIterator[_Tasks]:
        """Yield what `dead_letters` yields a page at a time; `page_size` is 1 to 1,000."""
        request = frontend_pb2.ListTasksRequest(page_size=page_size)
        request.statuses.append(task_pb2.TASK_STATUS_FATAL_FAILURE)
        return task_reads.list_pages(self._caller, filtered(request, which, DeadLetterListFilter))

    async def register(self, application: App) -> _Strings:
        """Declare the lambdas of an application and their time tables, without running them; return the registry's warnings.

        Raises the error of the first lambda that is refused, such as PermissionDeniedError: the caller is no owner of it.
        """
        return await registration.register(self._caller, application.lambdas())

    async def list(self, *, page_size: int = 100, **which: Unpack[ListFilter]) -> AsyncIterator[Task]:
        """Yield tasks, newest first, without their payloads and results; what is left out is not filtered by.

        Example:
            async for task in client.list(lambda_name="mail.send", statuses=[TaskStatus.FATAL_FAILURE]):
                print(task.task_id, task.failure)
        """
        async for page in self.list_pages(page_size=page_size, **which):
            for task in page:
                yield task

    def list_pages(self, *, page_size: int = 100, **which: Unpack[ListFilter]) -> AsyncIterator[_Tasks]:
        """Yield what `list` yields a page at a time; `page_size` is 1 to 1,000."""
        request = frontend_pb2.ListTasksRequest(page_size=page_size)
        return task_reads.list_pages(self._caller, filtered(request, which, ListFilter))
