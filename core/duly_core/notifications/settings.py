"""Settings of notifications: the targets, and what each is told."""

import ipaddress
import os
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NoReturn, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator

from duly_core.access.grants import pattern_problem
from duly_core.config.addresses import is_host, is_host_and_port
from duly_core.config.setting_errors import shown_key
from duly_core.config.settings import Duration, Section
from duly_core.errors import SettingsError
from duly_core.problems.kinds import Kind
from duly_wire.public_addresses import Network
from duly_wire.signatures import key_from_text

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_URL = re.compile(r"[!-~]{1,2000}")
_MAILBOX = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@[A-Za-z0-9.-]{1,253}")
MOST_TARGETS = 20
_LARGEST_FILE = 4_096
_KINDS = {each.name.lower(): each for each in Kind}
_DAY = timedelta(days=1)


def _check_mailbox(address: str) -> str:
    if not _MAILBOX.fullmatch(address):
        message = f"{address!r} is no address of e-mail: write NAME@HOST"
        raise ValueError(message)
    return address


def _check_kind(kind: str) -> str:
    if kind not in _KINDS:
        message = f"{kind!r} is no kind of problem: there are {', '.join(_KINDS)}"
        raise ValueError(message)
    return kind


def _check_pattern(pattern: str) -> str:
    if problem := pattern_problem(pattern):
        raise ValueError(problem)
    return pattern


def _check_server(address: str) -> str:
    if address and not is_host_and_port(address):
        message = f"{address!r} is not HOST:PORT, such as smtp.example.com:587"
        raise ValueError(message)
    return address


def _read_network(text: object) -> Network:
    if isinstance(text, ipaddress.IPv4Network | ipaddress.IPv6Network):
        return text
    try:
        return ipaddress.ip_network(str(text))
    except ValueError:
        message = f"{text!r} is no network: write such as 10.0.0.0/8, or 10.1.2.3/32"
        raise ValueError(message) from None


Mailbox = Annotated[str, AfterValidator(_check_mailbox)]


class Target(BaseModel):
    """`[notifications.targets.NAME]`: whom to tell, and what."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Literal["webhook", "slack", "email"]
    url: SecretStr = SecretStr("")
    url_file: str = ""
    url_environment: str = ""
    key_file: str = ""
    key_environment: str = ""
    smtp: Annotated[str, AfterValidator(_check_server)] = ""
    tls: Literal["starttls", "tls", "none"] = "starttls"
    user: str = ""
    password_file: str = ""
    password_environment: str = ""
    sender: Mailbox | Literal[""] = ""
    recipients: tuple[Mailbox, ...] = Field(default=(), max_length=50)
    severity: Literal["warning", "critical"] = "warning"
    kinds: tuple[Annotated[str, AfterValidator(_check_kind)], ...] = ()
    lambdas: tuple[Annotated[str, AfterValidator(_check_pattern)], ...] = Field(default=(), max_length=50)
    delay: Duration = Field(default=timedelta(seconds=30), ge=timedelta(), le=_DAY)
    repeat: Duration = Field(default=timedelta(), ge=timedelta(), le=30 * _DAY)
    resolved: bool = True

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        by_mail = ("smtp", "sender", "recipients", "user", "password_file", "password_environment")
        by_http = ("url", "url_file", "url_environment", "key_file", "key_environment")
        is_mail = self.kind == "email"
        for name in by_http if is_mail else by_mail:
            if name in self.model_fields_set:
                _refuse(f"{name} has no meaning for the kind {self.kind}")
        if is_mail:
            if missing := [name for name in ("smtp", "sender", "recipients") if not getattr(self, name)]:
                _refuse(f"the kind email needs {' and '.join(missing)}")
            if bool(self.user) != bool(self.password_file or self.password_environment):
                _refuse("a user needs password_file or password_environment, and they need a user")
            if self.user and self.tls == "none":
                _refuse("without TLS the password is sent in clear: set tls to starttls or tls")
        elif sum(map(bool, (self.url.get_secret_value(), self.url_file, self.url_environment))) != 1:
            _refuse(f"the kind {self.kind} needs one of url, url_file and url_environment")
        if self.kind == "slack" and (self.key_file or self.key_environment):
            _refuse("key_file and key_environment are for the kind webhook: Slack reads no signatures")
        if timedelta() < self.repeat < timedelta(minutes=5):
            _refuse("repeat must be at least 5m, or 0s: never")
        return self

    def __str__(self) -> str:
        """Return what everybody may read of it."""
        return self.kind

    __repr__ = __str__

    def read_url(self, *, allow_plaintext: bool) -> str:
        """Return the URL.

        Raises:
            SettingsError: it cannot be read, or is none; the message does not quote it.
        """
        url = self.url.get_secret_value() or _secret("url", self.url_file, self.url_environment)
        if problem := _url_problem(url, allow_plaintext=allow_plaintext):
            raise SettingsError(problem)
        return url

    def read_keys(self) -> Mapping[str, bytes]:
        """Return the keys that sign, by id: `1` for the first line, and so on. None: nothing is signed.

        Raises:
            SettingsError: they cannot be read, or are none; the message does not quote them.
        """
        if not self.key_file and not self.key_environment:
            return {}
        lines = _secret("key", self.key_file, self.key_environment).split()
        try:
            return {str(place): key_from_text(line) for place, line in enumerate(lines, 1)}
        except ValueError as error:
            raise SettingsError(f"the signing key: {error}") from None

    def read_password(self) -> str:
        """Return the password of the mail server.

        Raises:
            SettingsError: it cannot be read.
        """
        return _secret("password", self.password_file, self.password_environment)


def _refuse(message: str) -> NoReturn:
    raise ValueError(message)


def _secret(what: str, file: str, environment: str) -> str:
    """Read a secret again for each use, so that a new one needs no restart.

    Raises:
        SettingsError: it is not there.
    """
    if file:
        try:
            with Path(file).open(encoding="utf-8") as opened:
                text = opened.read(_LARGEST_FILE + 1).strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise SettingsError(f"{what}_file {file} cannot be read: {reason}") from None
        where = f"{what}_file {file}"
    else:
        text, where = (
            os.environ.get(environment, "").strip(),
            f"the variable {environment} ({what}_environment)",
        )
    if not text or len(text) > _LARGEST_FILE:
        raise SettingsError(f"{where} {'is empty' if not text else 'is too long'}")
    return text


def _url_problem(url: str, *, allow_plaintext: bool) -> str:
    """Return what is wrong with a URL; empty: nothing. It may be a secret: nothing of it is quoted."""
    try:
        parts = urlsplit(url)
        is_url = parts.port != 0 and is_host(parts.hostname or "") and _URL.fullmatch(url) is not None
    except ValueError:
        is_url = False
    if not is_url or parts.scheme not in ("https", "http"):
        return "the URL is none: write https://HOST/PATH, at most 2,000 characters of ASCII"
    if parts.scheme == "http" and not allow_plaintext:
        return "the URL begins with http://, which sends in clear: write https://, or set notifications.allow_plaintext"
    if parts.username is not None or parts.password is not None or parts.fragment:
        return "the URL has a user, a password or a fragment: leave them out"
    return ""


def _check_targets(targets: dict[str, Target]) -> dict[str, Target]:
    for name in targets:
        if not _NAME.fullmatch(name):
            message = f"{shown_key(name)!r} is no name of a target: write 1 to 64 of a-z, 0-9, '-' and '_'"
            raise ValueError(message)
    if len(targets) > MOST_TARGETS:
        message = f"there may be at most {MOST_TARGETS} targets, not {len(targets)}"
        raise ValueError(message)
    return targets


class NotificationSettings(Section):
    """`[notifications]`."""

    SECTION: ClassVar[str] = "notifications"

    targets: Annotated[dict[str, Target], AfterValidator(_check_targets)] = Field(default={})
    """Whom a Frontend tells of problems: tables `[notifications.targets.NAME]` in the file, or JSON. Empty: nobody."""
    allow: tuple[Annotated[Any, BeforeValidator(_read_network)], ...] = ()
    """Networks, such as 10.0.0.0/8, that webhooks may lead to beside public addresses."""
    allow_plaintext: bool = False
    """Let webhooks be http://, too: what they say is sent in clear."""
    timeout: Duration = Field(
        default=timedelta(seconds=10), ge=timedelta(seconds=1), le=timedelta(seconds=30)
    )
    """How long one delivery may take."""
    ca_file: str = ""
    """File with the certificates that sign those of webhooks and mail servers. Empty: the system's."""

    @model_validator(mode="after")
    def _can_be_used(self) -> Self:
        for name, target in self.targets.items():
            url = target.url.get_secret_value()
            if url and (problem := _url_problem(url, allow_plaintext=self.allow_plaintext)):
                _refuse(f"targets.{name}: {problem}")
        return self
