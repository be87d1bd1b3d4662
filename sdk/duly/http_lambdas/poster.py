"""Makes the application: a callback for each lambda of the file, which posts the task and reads the answer."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import aiohttp

from duly.callbacks.app import App
from duly.callbacks.callback import Callback, checked_name
from duly.callbacks.outcomes import CallbackOutcome, FatalFailure, RetriableFailure
from duly.callbacks.payload import SentPayload
from duly.errors import RegistrationError
from duly.http_lambdas.answers import outcome_of
from duly.http_lambdas.ended_event import ended_event
from duly.webhooks import COMPLETION_TOKEN, signed_headers
from duly_wire.guarded_http import ForbiddenAddressError, Sender
from duly_wire.v1 import task_pb2

if TYPE_CHECKING:
    from duly.context import TaskContext
    from duly.http_lambdas.definition import HttpLambda, HttpLambdas

_LATER = timedelta(seconds=5)
"""The Executor ends an attempt at its deadline; a request ends by itself this much later."""


def make_app(definition: HttpLambdas) -> App:
    """Return the application of a file. Raises RegistrationError."""
    try:
        sender = Sender(definition.allowed, definition.connect_timeout, definition.ca_file)
    except OSError as error:
        raise RegistrationError(f"network.ca_file: {error}") from None
    app = App(owner=definition.owner, version=definition.version)
    for each in definition.lambdas:
        app.add(
            Callback(
                name=checked_name(each.name),
                function=_Poster(each, sender).post,
                policy=each.policy,
                raw=False,
                reader=None,
                takes_payload=True,
                takes_context=True,
                as_sent=True,
            )
        )
    return app


class _Poster:
    """The callback of one lambda."""

    def __init__(self, target: HttpLambda, sender: Sender) -> None:
        self._target = target
        self._host = urlsplit(target.url).hostname
        self.sender = sender

    async def post(self, payload: SentPayload, ctx: TaskContext) -> CallbackOutcome:
        """Post a task; say what its answer means."""
        target = self._target
        is_json = target.is_webhook or payload.encoding == task_pb2.ENCODING_JSON
        body = (
            ended_event(payload, ctx) if target.is_webhook else payload.data or (b"null" if is_json else b"")
        )
        headers = signed_headers(
            target.keys,
            body,
            task_id=ctx.task_id,
            lambda_name=target.name,
            attempt=ctx.attempt,
            fence=ctx.fence,
            deadline=ctx.deadline,
        )
        headers["idempotency-key"] = f'"{ctx.task_id}"'
        if target.completion_timeout is not None:
            headers[COMPLETION_TOKEN] = ctx.completion_token()
        headers["content-type"] = "application/json" if is_json else "application/octet-stream"
        headers["user-agent"] = "duly"
        timeout = max(ctx.deadline - datetime.now(UTC), timedelta()) + _LATER
        try:
            answer = await self.sender.post(target.url, body, headers, target.policy.result_limit, timeout)
        except ForbiddenAddressError:
            return FatalFailure(
                f"{self._host} leads to an address that is not public: allow its network in the file, network.allow"
            )
        except (aiohttp.ClientError, OSError) as error:
            return RetriableFailure(f"{self._host}: {_problem(error)}")
        return outcome_of(
            answer.status, answer.headers, answer.body, datetime.now(UTC), target.completion_timeout
        )


def _problem(error: Exception) -> str:
    """Return what went wrong, without the URL: its path may be a secret."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        return "its certificate is not trusted, or TLS failed"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno or 0  # those of failed look-ups of names are negative
        return f"no connection: {os.strerror(number) if number > 0 else error.os_error.strerror}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "it closed the connection without an answer"
    return f"the request failed: {type(error).__name__}"
