"""Delivers one message to one target: over HTTP to allowed addresses only, or by SMTP. Each has a deadline."""

import asyncio
import os
import socket
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from duly_core.errors import SettingsError
from duly_core.notifications.messages import email, slack_body, webhook_body
from duly_core.notifications.rules import Message
from duly_core.notifications.settings import NotificationSettings, Target
from duly_core.problems.problem import clean
from duly_wire.signatures import signed_headers

if TYPE_CHECKING:
    from duly_wire.guarded_http import Sender

_ANSWER = 4_096
"""Read of an answer: it says no more than that it came."""
_CONNECT = timedelta(seconds=5)
_LONGEST_WAIT = timedelta(hours=1)
_MOST_WORDS = 200


class Outcome(NamedTuple):
    """What came of a delivery."""

    failure: str
    """Empty: it arrived. It names no URL: its path may be a secret."""
    retry_after: timedelta | None = None
    """What the receiver asked for."""


class Deliveries:
    """Delivers messages; connections are kept for a time."""

    def __init__(self, settings: NotificationSettings, public_url: str) -> None:
        """Make them.

        Raises:
            SettingsError: what the targets need is not installed, or a secret or a certificate cannot be read.
        """
        self._settings = settings
        self._public_url = public_url
        try:
            self._tls = ssl.create_default_context(cafile=settings.ca_file or None)
        except OSError as error:
            raise SettingsError(f"notifications.ca_file {settings.ca_file}: {error}") from None
        kinds = {each.kind for each in settings.targets.values()}
        self._sender = _http_sender(settings) if kinds - {"email"} else None
        if "email" in kinds:
            _check_mail_library()
        for name, target in settings.targets.items():
            try:
                self._check(target)
            except SettingsError as error:
                raise SettingsError(f"notifications.targets.{name}: {error}") from None

    @property
    def targets(self) -> Mapping[str, Target]:
        """The targets that the settings name."""
        return self._settings.targets

    def _check(self, target: Target) -> None:
        """Read the secrets of a target: what is wrong with them is said at the start."""
        if target.kind != "email":
            target.read_url(allow_plaintext=self._settings.allow_plaintext)
            target.read_keys()
        elif target.user:
            target.read_password()

    async def deliver(self, name: str, message: Message, attempt: int) -> Outcome:
        """Deliver a message, within `notifications.timeout`; say what came of it."""
        target = self._settings.targets[name]
        try:
            async with asyncio.timeout(self._settings.timeout.total_seconds()):
                if target.kind == "email":
                    return await self._mail(name, target, message)
                return await self._post(name, target, message, attempt)
        except SettingsError as error:
            return Outcome(str(error))
        except TimeoutError:
            return Outcome(f"no answer within {self._settings.timeout.total_seconds():g} s")

    async def close(self) -> None:
        """Close the connections."""
        if self._sender is not None:
            await self._sender.close()

    async def _post(self, name: str, target: Target, message: Message, attempt: int) -> Outcome:
        import aiohttp

        from duly_wire.guarded_http import ForbiddenAddressError

        assert self._sender is not None  # noqa: S101 (some target needs it)
        url = target.read_url(allow_plaintext=self._settings.allow_plaintext)
        is_slack = target.kind == "slack"
        body = (
            slack_body(message, self._public_url)
            if is_slack
            else webhook_body(message, name, self._public_url)
        )
        headers = {} if is_slack else self._headers(name, target, message, body, attempt)
        headers |= {"content-type": "application/json", "user-agent": "duly"}
        try:
            answer = await self._sender.post(url, body, headers, _ANSWER, self._settings.timeout)
        except ForbiddenAddressError:
            return Outcome(
                "its name leads to an address that is not public: name its network in notifications.allow"
            )
        except (aiohttp.ClientError, OSError, UnicodeError) as error:  # of a name that cannot be encoded
            if isinstance(error, TimeoutError):
                raise
            return Outcome(_http_problem(error))
        if 200 <= answer.status < 300:
            return Outcome("")
        return Outcome(f"it answered {answer.status}", _retry_after(answer.headers))

    def _headers(
        self, name: str, target: Target, message: Message, body: bytes, attempt: int
    ) -> dict[str, str]:
        headers = {"idempotency-key": f'"{message.message_id}"', "webhook-id": message.message_id}
        keys = target.read_keys()
        if not keys:
            return headers
        return headers | signed_headers(
            keys,
            body,
            task_id=message.message_id,
            lambda_name=f"notifications:{name}",
            attempt=attempt,
            fence=attempt,
            deadline=datetime.now(UTC) + self._settings.timeout,
        )

    async def _mail(self, name: str, target: Target, message: Message) -> Outcome:
        import aiosmtplib

        host, _, port = target.smtp.rpartition(":")
        mail = email(message, name, self._public_url, target.sender, target.recipients)
        client = aiosmtplib.SMTP(
            hostname=host.strip("[]"),
            port=int(port),
            timeout=self._settings.timeout.total_seconds(),
            use_tls=target.tls == "tls",
            start_tls=target.tls == "starttls",
            tls_context=None if target.tls == "none" else self._tls,
            username=target.user or None,
            password=target.read_password() if target.user else None,
        )
        try:
            async with client:
                refused, _ = await client.send_message(
                    mail, sender=target.sender, recipients=[*target.recipients]
                )
        except (aiosmtplib.SMTPException, OSError, UnicodeError) as error:
            return Outcome(_mail_problem(error))
        finally:
            client.close()
        if refused:
            return Outcome(
                f"the mail server took it for {len(target.recipients) - len(refused)} of {len(target.recipients)} recipients"
            )
        return Outcome("")


def _http_sender(settings: NotificationSettings) -> "Sender":
    try:
        from duly_wire.guarded_http import Sender
    except ModuleNotFoundError:
        raise SettingsError(
            "notifications.targets: webhooks need aiohttp: pip install 'duly[notifications]'"
        ) from None
    try:
        return Sender(tuple(settings.allow), min(_CONNECT, settings.timeout), settings.ca_file)
    except OSError as error:
        raise SettingsError(f"notifications.ca_file {settings.ca_file}: {error}") from None


def _check_mail_library() -> None:
    try:
        import aiosmtplib  # noqa: F401 (whether it is there)
    except ModuleNotFoundError:
        raise SettingsError(
            "notifications.targets: e-mail needs aiosmtplib: pip install 'duly[notifications]'"
        ) from None


def _http_problem(error: Exception) -> str:
    """Return what went wrong, without the URL: its path may be a secret."""
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        return "its certificate is not trusted, or TLS failed"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"no connection: {_reason(error.os_error)}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "it closed the connection without an answer"
    return f"the request failed: {type(error).__name__}"


def _mail_problem(error: Exception) -> str:
    """Return what went wrong; words of the server are shown without what cannot be printed."""
    import aiosmtplib

    if isinstance(error, aiosmtplib.SMTPTimeoutError):
        return "no answer in time"
    if isinstance(error, aiosmtplib.SMTPResponseException):
        return clean(f"the mail server answered {error.code} {error.message[:_MOST_WORDS]}")
    if isinstance(error, aiosmtplib.SMTPRecipientsRefused):
        return "the mail server refused all recipients"
    cause = error.__cause__
    if isinstance(cause, OSError):
        return f"no connection: {_reason(cause)}"
    return clean(f"{type(error).__name__}: {str(error)[:_MOST_WORDS]}")


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return "its certificate is not trusted, or TLS failed"
    number = error.errno or 0
    if isinstance(error, socket.gaierror) or number <= 0:
        return error.strerror or type(error).__name__
    return os.strerror(number)


def _retry_after(headers: Mapping[str, str]) -> timedelta | None:
    text = headers.get("retry-after", "")
    if not (text.isascii() and text.isdecimal() and len(text) <= 6):
        return None
    return min(timedelta(seconds=int(text)), _LONGEST_WAIT)
