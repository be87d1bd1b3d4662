"""The part of AsyncClient that completes tasks by token."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import Any
from uuid import UUID

from duly.attachments.attachment import AttachmentsInsideError
from duly.callbacks.codec import protect, result_of
from duly.callbacks.payload import encode
from duly.errors import EncodingError, InvalidTaskError, TokenTooEarlyError
from duly.transport import error_mapping
from duly.transport.caller import DEFAULT_TIMEOUT, seconds
from duly.transport.client_part import ClientPart
from duly.transport.message_fields import wire_member
from duly_wire.completion_tokens import read_completion_token
from duly_wire.enums import TaskStatus
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import frontend_pb2

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


class CompletionCalls(ClientPart):
    """Completes tasks whose callbacks ended with `CompleteLater`. Whoever has the token may: no role is needed."""

    async def complete(
        self, token: str, result: Any = None, *, timeout: timedelta = DEFAULT_TIMEOUT
    ) -> TaskStatus:
        """End a task as SUCCESS, with a result: bytes, or anything JSON can carry, at most 1 MiB, without attachments.

            await client.complete(token, {"parcel": 3})

        A repeated call with the same result is answered as the first. Raises TokenNotCurrentError, TaskFinalError (it has ended otherwise, such
        as by a cancel), TokenTooEarlyError (its callback still runs, after all of `timeout`), EncodingError, InvalidTaskError, UnavailableError (the
        outcome is unknown: call again).
        """
        task_id, token = _task_of(token)
        try:
            encoded = encode(result)
        except AttachmentsInsideError:
            raise EncodingError(
                "the result of a completion has no attachments: return them from a callback"
            ) from None
        data, encoding = protect(self._caller.codec, encoded, result_of(task_id), task_id)
        success = frontend_pb2.CompletionSuccess(result=data, result_encoding=encoding)
        return await self._complete(frontend_pb2.Completion(token=token, success=success), timeout)

    async def fail(
        self,
        token: str,
        message: str,
        *,
        retry: bool = True,
        retry_after: timedelta | None = None,
        timeout: timedelta = DEFAULT_TIMEOUT,
    ) -> TaskStatus:
        """Say that the work of a task failed; return its status: RETRIABLE_FAILURE, or FATAL_FAILURE if no attempts are left.

        `retry` False ends the task. `retry_after` replaces the lambda's backoff for this once. Raises what `complete` does.
        """
        _, token = _task_of(token)
        failure = frontend_pb2.CompletionFailure(message=message, is_fatal=not retry)
        if retry_after is not None:
            failure.retry_after.CopyFrom(to_duration(retry_after))
        return await self._complete(frontend_pb2.Completion(token=token, failure=failure), timeout)

    async def _complete(self, completion: frontend_pb2.Completion, timeout: timedelta) -> TaskStatus:
        clock = asyncio.get_running_loop().time
        deadline = clock() + seconds(timeout)
        request = frontend_pb2.CompleteTasksRequest(completions=[completion])
        pause = _FIRST_PAUSE_S
        while True:
            left = timedelta(seconds=max(0.0, deadline - clock()))
            response = await self._caller.call(self._caller.frontend.CompleteTasks, request, left)
            (result,) = response.results
            if not result.HasField("error"):
                return wire_member(TaskStatus, result.status)
            error = error_mapping.from_item(result.error)
            if not isinstance(error, TokenTooEarlyError) or clock() + pause >= deadline:
                raise error
            await asyncio.sleep(random.uniform(pause / 2, pause))  # noqa: S311 (jitter is no secret)
            pause = min(2 * pause, _LONGEST_PAUSE_S)


def _task_of(token: str) -> tuple[str, str]:
    """Return the task that a token is of, in text form, and the token."""
    token = token.strip()
    try:
        task_id, _ = read_completion_token(token)
    except ValueError as error:
        raise InvalidTaskError(f"token: {error}", "token") from None
    return str(UUID(bytes=task_id)), token
