"""The part of AsyncClient that schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Unpack, overload

from duly.callbacks.lambda_of import (
    Payload,
    Result,
    ScheduleOptions,
    Taking,
    TakingLater,
    TakingNothing,
    TakingNothingLater,
)
from duly.tasks.handle import Handle, check_result_type, handle_of
from duly.tasks.new_task import NewTask, ScheduledTask, scheduled_task
from duly.transport.caller import DEFAULT_TIMEOUT
from duly.transport.client_part import ClientPart
from duly_wire.v1 import frontend_pb2


class ScheduleCalls(ClientPart):
    """Schedules by name, or by callback."""

    @overload
    async def schedule(
        self,
        lambda_name: str,
        payload: Any = None,
        *,
        result_type: type[Result],
        **options: Unpack[ScheduleOptions],
    ) -> Handle[Result]: ...
    @overload
    async def schedule(
        self,
        lambda_name: str,
        payload: Any = None,
        *,
        result_type: None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduledTask: ...
    @overload
    async def schedule(
        self,
        lambda_name: TakingNothingLater[Result],
        payload: None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Handle[Result]: ...
    @overload
    async def schedule(
        self, lambda_name: TakingNothing[Result], payload: None = None, **options: Unpack[ScheduleOptions]
    ) -> Handle[Result]: ...
    @overload
    async def schedule(
        self, lambda_name: TakingLater[Payload, Result], payload: Payload, **options: Unpack[ScheduleOptions]
    ) -> Handle[Result]: ...
    @overload
    async def schedule(
        self, lambda_name: Taking[Payload, Result], payload: Payload, **options: Unpack[ScheduleOptions]
    ) -> Handle[Result]: ...
    async def schedule(
        self,
        lambda_name: str | Callable[..., Any],
        payload: Any = None,
        *,
        timeout: timedelta = DEFAULT_TIMEOUT,
        result_type: Any = None,
        **options: Any,
    ) -> Any:
        """Schedule a task; when this returns, the task is durable.

            await client.schedule("mail.send", Mail(to=["ann"]), delay=timedelta(hours=1), priority=Priority.LOW)

        - `lambda_name`: a name, or the callback itself, whose payload's type is checked by mypy and by editors:
          `client.schedule(send, Mail(to=["ann"]))`.
        - `payload`: bytes, or anything JSON can carry; dataclasses and pydantic models become objects. Its `duly.Attachment`s are uploaded
          first, and so is a payload that is too large for a task.
        - `collection`: a label on a part of a lambda's tasks, to find them by.
        - `at` or `delay`: when to run it; neither is now. `at` must have a time zone; `delay` is
          counted on Duly's clock, so it does not depend on this host's.
        - `expires_at`: a task that waits to start, or to run again, at this time ends as FATAL_FAILURE (EXPIRED).
        - `idempotency_key`: the same key, within one lambda, never makes a second task; the receipt
          then names the first one, with `created` False. A key holds until its task is removed, some
          days after its end: `store.retention` says how many.
        - `session`: a key, or a `Session`: its tasks run one at a time, in order.
        - `resources`: names, or `ResourceNeed`s: what it takes units of while it runs. It waits until there are enough.
        - `fair_key`: whose work it is, such as a customer: tasks of one lambda take turns by it.
        - `attributes`: what you find the task by, such as `{"order": 17}`: at most 8 texts, integers or flags. All who may read the task
          see them. `list(attributes={"order": 17})` finds it.
        - `unique`: a key, or a `Unique`: while another task has it, this one is ignored, is refused, or replaces what the other one runs with.
          The receipt then names the other one, and `conflict` says what was done.
        - `debounce`: a `Debounce`: the task runs once the calls with its key pause, with the latest payload.
        - `lambda_version`: only workers that serve this version run it (`App(pinned=True)`). A version that no worker declared raises UnknownLambdaError.
        - `domain`: only workers of this domain run it. A domain in which no worker ever served the lambda raises UnknownLambdaError.
        - `requires`: labels that a host must have to run it, such as `["gpu"]`, besides those that its lambda requires.
        - `result_type`: what `wait(...).result` reads the result into, such as a dataclass; with a callback it is what the
          callback says it returns. The receipt is then a `Handle`.
        - `timeout`: for all tries together; the parts of attachments take as long as they do.

        Raises UnknownLambdaError, UnknownResourceError, PayloadTooLargeError, QuotaExceededError, KeyConflictError, UniqueKeyTakenError,
        InvalidTaskError (it names the argument), EncodingError, what uploading attachments raises (AttachmentChangedError,
        AttachmentQuotaError, AttachmentsOffError, OSError), or UnavailableError (the outcome is then unknown; its `task_id` says for which task to ask).
        """
        check_result_type(result_type)
        written = await self._scheduler.schedule(scheduled_task(lambda_name, payload, options), timeout)
        return handle_of(written, lambda_name, result_type)

    async def send(self, task: frontend_pb2.NewTask, timeout: timedelta) -> ScheduledTask:
        """Schedule a task that may have been sent before, under the id or key that it has."""
        return await self._scheduler.send(task, timeout)

    async def schedule_many(
        self, tasks: Iterable[NewTask], *, timeout: timedelta = DEFAULT_TIMEOUT
    ) -> list[ScheduledTask]:
        """Schedule many tasks in few calls, and return their receipts in order; `NewTask(send, Mail())` takes a callback, too.

        `timeout` is for each call of up to 1,000 tasks; a few are under way at a time. Raises
        ScheduleManyError, once all were tried, if any were not written; its `results` tell which.
        """
        return await self._scheduler.schedule_many(tasks, timeout)
