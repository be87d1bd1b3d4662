"""The client for programs without an event loop: a thin face on AsyncClient.

The loop runs in one daemon thread of the client's own; each method runs its namesake there and
waits. It has no logic of its own. Only `schedule` has a shorter way: a call that is
made while no other is goes out from the caller's own thread, without a switch of threads.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar, Unpack, overload

import grpc

from duly.after_fork import keep_in_children
from duly.blocking_graph_calls import BlockingGraphCalls
from duly.blocking_schedule import BlockingSchedule
from duly.caller import DEFAULT_TIMEOUT, seconds
from duly.client import AsyncClient
from duly.codec import Codec
from duly.dead_letters import DeadLetterFilter, Redrive
from duly.enums import Priority, TaskStatus
from duly.errors import ClosedError, DulyError
from duly.handles import Payload, ScheduleOptions, Taking, TakingNothing, name_of
from duly.lambda_info import LambdaInfo
from duly.new_task import NewTask, ScheduledTask
from duly.resource import ResourceNeed, SyncResourceCalls
from duly.scheduling import receipt
from duly.session import Session, SessionState
from duly.settings import Setting
from duly.sync_change_calls import SyncChangeCalls
from duly.sync_time_tables import SyncTimeTableCalls
from duly.task import Task
from duly.task_reads import TaskFilter, TaskRef

Value = TypeVar("Value")

# Within the class `list` is a method, so these say what it would hide.
_Receipts: TypeAlias = list[ScheduledTask]
_Tasks: TypeAlias = list[Task]
_TasksOrNone: TypeAlias = list[Task | None]
_Lambdas: TypeAlias = list[LambdaInfo]
_StatusesOrErrors: TypeAlias = list[TaskStatus | DulyError]
_Settings: TypeAlias = list[Setting]
_SettingsOrErrors: TypeAlias = list[Setting | DulyError]


class Client(SyncChangeCalls, BlockingGraphCalls, SyncTimeTableCalls, SyncResourceCalls):
    """Schedules tasks and follows them, through one Frontend; any threads may share one client.

        with duly.Client() as client:
            task = client.schedule("mail.send", {"to": "ann@example.org"})
            print(client.wait(task).result)

    Works as soon as it is made; `close` it, or use `with`. After a fork the child makes its own.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        token: str | None = None,
        unreachable_after: timedelta | None = None,
        codec: Codec | None = None,
    ) -> None:
        """Name the Frontend, as for AsyncClient."""
        self._client = AsyncClient(
            address, credentials=credentials, token=token, unreachable_after=unreachable_after, codec=codec
        )
        self._process = os.getpid()
        keep_in_children(self)
        self._direct = BlockingSchedule(self._client.address, self._client.credentials, self._client.reach)
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
        self, lambda_name: str, payload: Any = None, **options: Unpack[ScheduleOptions]
    ) -> ScheduledTask: ...
    @overload
    def schedule(
        self, lambda_name: TakingNothing, payload: None = None, **options: Unpack[ScheduleOptions]
    ) -> ScheduledTask: ...
    @overload
    def schedule(
        self, lambda_name: Taking[Payload], payload: Payload, **options: Unpack[ScheduleOptions]
    ) -> ScheduledTask: ...
    def schedule(
        self,
        lambda_name: str | Callable[..., Any],
        payload: Any = None,
        *,
        priority: Priority = Priority.NORMAL,
        collection: str = "",
        at: datetime | None = None,
        delay: timedelta | None = None,
        expires_at: datetime | None = None,
        idempotency_key: str | None = None,
        session: Session | str | None = None,
        resources: Iterable[ResourceNeed | str] = (),
        timeout: timedelta = DEFAULT_TIMEOUT,
    ) -> ScheduledTask:
        """Schedule a task; see AsyncClient.schedule. For many at once, `schedule_many` is far faster."""
        name = name_of(lambda_name)
        told = (priority, collection, at, delay, expires_at, idempotency_key, session, tuple(resources))
        new = NewTask(name, payload, *told)
        task, patience = new.to_proto(self._client.codec), seconds(timeout)
        self._check_usable()
        began_at = time.monotonic()
        result = self._direct.schedule(task, patience)
        if result is not None:
            return receipt(task, result)
        left = max(0.0, patience - (time.monotonic() - began_at))
        return self._run(self._client.send(task, timedelta(seconds=left)))

    def schedule_many(self, tasks: Iterable[NewTask], *, timeout: timedelta = DEFAULT_TIMEOUT) -> _Receipts:
        """Schedule many tasks in few calls; see AsyncClient.schedule_many."""
        # Drawn from here: a generator's database session, say, belongs to the thread that made it.
        return self._run(self._client.schedule_many([*tasks], timeout=timeout))

    def get(self, task: TaskRef) -> Task:
        """Return a task as it stands now. Raises TaskNotFoundError."""
        return self._run(self._client.get(task))

    def get_many(self, tasks: Iterable[TaskRef]) -> _TasksOrNone:
        """Return tasks as they stand now, in order; None for an unknown one."""
        return self._run(self._client.get_many([*tasks]))

    def wait(
        self, task: TaskRef, timeout: timedelta | None = None, *, raise_on_failure: bool = False
    ) -> Task:
        """Return the task once it is final; see AsyncClient.wait."""
        return self._run(self._client.wait(task, timeout, raise_on_failure=raise_on_failure))

    def wait_many(
        self, tasks: Iterable[TaskRef], timeout: timedelta | None = None, *, raise_on_failure: bool = False
    ) -> _Tasks:
        """Return the tasks, in order, once all are final; otherwise as `wait`."""
        return self._run(self._client.wait_many([*tasks], timeout, raise_on_failure=raise_on_failure))

    def cancel(self, task: TaskRef) -> TaskStatus:
        """Cancel a task and return its status now; see AsyncClient.cancel."""
        return self._run(self._client.cancel(task))

    def cancel_many(self, tasks: Iterable[TaskRef]) -> _StatusesOrErrors:
        """Cancel tasks; return for each, in order, its status now, or why it was not cancelled."""
        return self._run(self._client.cancel_many([*tasks]))

    def redrive(self, task: TaskRef) -> TaskStatus:
        """Let a dead letter run again at once, and return its status; see AsyncClient.redrive."""
        return self._run(self._client.redrive(task))

    def redrive_many(self, tasks: Iterable[TaskRef]) -> _StatusesOrErrors:
        """Let dead letters run again; return for each, in order, its status now, or why it was not redriven."""
        return self._run(self._client.redrive_many([*tasks]))

    def redrive_where(
        self,
        *,
        rate: float | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        **which: Unpack[DeadLetterFilter],
    ) -> Redrive:
        """Let all dead letters that the filters find run again; see AsyncClient.redrive_where."""
        return self._run(self._client.redrive_where(rate=rate, limit=limit, dry_run=dry_run, **which))

    def dead_letters(self, *, page_size: int = 100, **which: Unpack[DeadLetterFilter]) -> Iterator[Task]:
        """Yield dead letters, newest first, without their payloads; see AsyncClient.dead_letters."""
        yield from self._each(self._client.dead_letter_pages(page_size=page_size, **which))

    def lambdas(self) -> _Lambdas:
        """Return the registered lambdas with their policies."""
        return self._run(self._client.lambdas())

    def settings(self) -> _Settings:
        """Return the settings that can be changed while Duly runs; see AsyncClient.settings."""
        return self._run(self._client.settings())

    def set_setting(self, name: str, value: str) -> Setting:
        """Set a setting in all processes; see AsyncClient.set_setting."""
        return self._run(self._client.set_setting(name, value))

    def set_settings(self, values: Mapping[str, str]) -> _SettingsOrErrors:
        """Set several settings; see AsyncClient.set_settings."""
        return self._run(self._client.set_settings(values))

    def reset_settings(self, names: Iterable[str]) -> _SettingsOrErrors:
        """Undo what operators set; see AsyncClient.reset_settings."""
        return self._run(self._client.reset_settings([*names]))

    def get_session(self, key: str, *, max_tasks: int = 100) -> SessionState | None:
        """Return a session; None: it has no live tasks, and is not blocked. See AsyncClient.get_session."""
        return self._run(self._client.get_session(key, max_tasks=max_tasks))

    def sessions(self, *, blocked: bool = False, page_size: int = 100) -> Iterator[SessionState]:
        """Yield sessions by key; see AsyncClient.sessions."""
        yield from self._each(self._client.session_pages(blocked=blocked, page_size=page_size))

    def unblock_session(self, key: str, *, blocked_by: str | None = None) -> None:
        """Let the next task of a blocked session run; see AsyncClient.unblock_session."""
        self._run(self._client.unblock_session(key, blocked_by=blocked_by))

    def list(self, *, page_size: int = 100, **which: Unpack[TaskFilter]) -> Iterator[Task]:
        """Yield tasks, newest first, without their payloads and results; see AsyncClient.list."""
        yield from self._each(self._client.list_pages(page_size=page_size, **which))

    def _each(self, pages: AsyncIterator[Sequence[Value]]) -> Iterator[Value]:
        async def next_page() -> Sequence[Value] | None:
            return await anext(pages, None)

        while (page := self._run(next_page())) is not None:
            yield from page

    async def _disconnect(self) -> None:
        """Close, and end what other threads still wait for, so that they do not wait for ever."""
        await self._client.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _check_usable(self) -> None:
        if self._closed or self._process != os.getpid():
            reason = "was closed" if self._closed else "was made before a fork: make a new one in the child"
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
