"""An AttachmentService over a client's connection: uploads and fetches block a thread, their calls run on the client's loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from duly.attachments.service import FETCH, UPLOAD, Method, Response
from duly.errors import AttachmentsOffError, ClosedError, RequestError

if TYPE_CHECKING:
    from duly.transport.caller import Caller

Value = TypeVar("Value")

_TIMEOUT = timedelta(seconds=10)
_PART_TIMEOUT = timedelta(minutes=2)
"""Of one call that carries a part, with its repeats."""
_ONE_TRY = timedelta(minutes=1)
"""For a part of 4 MiB: 0.6 Mbit/s are enough."""
_OFF = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNIMPLEMENTED)


class ClientService:
    """Makes the calls of one upload or fetch."""

    calls_at_a_time = 4

    def __init__(self, caller: Caller, timeout: timedelta) -> None:
        self._caller = caller
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._stopped = False

    def stop(self) -> None:
        """Make no more calls: nobody waits for what comes of them."""
        self._stopped = True

    def check(self) -> None:
        """Raise if nobody waits any more."""
        if self._stopped:
            raise ClosedError("the call was cancelled")

    def call(self, method: Method[Response], request: Any) -> Response:
        """Return the answer; any thread but the loop's own may ask."""
        self.check()
        return asyncio.run_coroutine_threadsafe(self._call(method, request), self._loop).result()

    async def _call(self, method: Method[Response], request: Any) -> Response:
        stub = (
            self._caller.upload_parts if method is UPLOAD else getattr(self._caller.attachments, method.name)
        )
        has_parts = method is UPLOAD or (method is FETCH and request.indexes)
        timeout = max(self._timeout, _PART_TIMEOUT) if has_parts else self._timeout
        try:
            answer: Response = await self._caller.call(stub, request, timeout, one_try=_ONE_TRY)
        except RequestError as error:
            status = error.__context__
            if isinstance(status, grpc.aio.AioRpcError) and status.code() in _OFF:
                raise AttachmentsOffError(status.details() or str(error)) from None
            raise
        return answer


async def in_thread(
    caller: Caller, work: Callable[[ClientService], Value], timeout: timedelta = _TIMEOUT
) -> Value:
    """Return what `work` does in a thread of its own, with calls on the running loop.

    `timeout` is for each call that carries no part.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Value] = loop.create_future()
    service = ClientService(caller, timeout)

    def settle(value: Value | None, error: BaseException | None) -> None:
        if done.done():  # nobody waits any more
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        value, failure = None, None
        try:
            value = work(service)
        except BaseException as error:  # noqa: BLE001 (who waits raises it)
            failure = error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, value, failure)

    threading.Thread(target=run, name="duly-attachments", daemon=True).start()
    try:
        return await done
    finally:
        service.stop()
