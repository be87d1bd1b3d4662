"""The session cookie: a person's tokens, encrypted. Of sessions the console keeps only which ones were ended."""

import base64
import binascii
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from duly_console import cookie_parts
from duly_console.secret_files import check_mode
from duly_core.errors import SettingsError

LONGEST_TOKEN = 2_500
"""Bytes of a token that a person pastes: browsers keep cookies of 4,096, and encryption adds a third."""
_LONGEST_NOTICE = 300
_KEY_BYTES = 32
_MOST_ENDED = 100_000
"""Sessions that were ended and would still last: beyond it those are forgotten that were ended first."""


@dataclass(frozen=True, slots=True)
class Session:
    """What the cookie says."""

    csrf: str
    """A form must have it: only pages of this session know it."""
    token: str = ""
    """What calls to the Frontend show; empty: nobody is signed in."""
    notice: str = ""
    """What the next page tells, once."""
    started_at: int = 0
    """When it began, in seconds since 1970: a cookie that is written anew does not make it last longer."""
    refresh: str = ""
    """What an identity provider takes for a newer token; empty: nothing."""
    expires_at: int = 0
    """When the token of an identity provider expires, in seconds since 1970; 0: it is a token that was pasted."""
    warning: str = ""
    """What the next page warns of, once."""

    @classmethod
    def new(cls, token: str = "") -> "Session":
        """Return the session of somebody who has just arrived or signed in."""
        return cls(secrets.token_urlsafe(18), token, started_at=int(time.time()))

    @classmethod
    def of_provider(cls, token: str, refresh: str, expires_at: int) -> "Session":
        """Return the session of somebody whom an identity provider has just signed in."""
        return replace(cls.new(token), refresh=refresh, expires_at=expires_at)

    @property
    def is_of_provider(self) -> bool:
        """Whether an identity provider signed the person in."""
        return self.expires_at > 0


class SessionCookies:
    """Writes and reads the cookie's value. Nobody without a key can read or make one."""

    def __init__(self, keys: MultiFernet, lifetime: timedelta) -> None:
        self.keys = keys
        self._lifetime = lifetime
        self._ended: OrderedDict[str, int] = OrderedDict()
        """When each session began that was ended, by what its forms have: in the order in which they were ended."""

    @classmethod
    def open(cls, secret_file: str, lifetime: timedelta) -> "SessionCookies":
        """Read the keys; without a file, make one.

        Raises:
            SettingsError: the file cannot be read, has something else than keys, or is open to others.
        """
        if not secret_file:
            return cls(MultiFernet([Fernet(Fernet.generate_key())]), lifetime)
        try:
            check_mode("console.secret_file", secret_file)
            lines = Path(secret_file).read_text("ascii").split()
            keys = [Fernet(_checked(line)) for line in lines]
        except (OSError, UnicodeDecodeError, ValueError) as error:
            raise SettingsError(f"console.secret_file: {secret_file} cannot be used: {error}") from error
        if not keys:
            raise SettingsError(f"console.secret_file: {secret_file} has no key")
        return cls(MultiFernet(keys), lifetime)

    def write(self, session: Session) -> str:
        """Return the cookie's value."""
        said: dict[str, object] = {
            "c": session.csrf,
            "t": session.token,
            "n": session.notice[:_LONGEST_NOTICE],
            "s": session.started_at,
        }
        if session.is_of_provider:
            said |= {"r": session.refresh, "e": session.expires_at}
        if session.warning:
            said["w"] = session.warning[:_LONGEST_NOTICE]
        value = self._encrypted(said)
        # a notice is no reason to lose the session
        return value if len(value) <= cookie_parts.LONGEST else self._encrypted(said | {"n": "", "w": ""})

    def _encrypted(self, said: Mapping[str, object]) -> str:
        return self.keys.encrypt(json.dumps(said).encode()).decode()

    def fits(self, session: Session) -> bool:
        """Whether browsers keep the session's cookies."""
        return len(self.write(session)) <= cookie_parts.LONGEST

    def read(self, value: str) -> Session | None:
        """Return the session; None: it has lasted too long, or the cookie is not ours."""
        try:
            said = json.loads(self.keys.decrypt(value.encode()))
            session = Session(
                said["c"],
                said["t"],
                said["n"],
                said["s"],
                said.get("r", ""),
                said.get("e", 0),
                said.get("w", ""),
            )
        except (
            InvalidToken,
            UnicodeEncodeError,
            KeyError,
        ):  # KeyError: it is no session, or an earlier release's
            return None
        return session if self.left(session) > 0 and session.csrf not in self._ended else None

    def end(self, session: Session) -> None:
        """Read the cookie of this session, and copies of it, as none of ours from now on.

        A session without a token takes no place: anybody can begin one, and a copy of its cookie gives nothing.
        """
        if not session.token:
            return
        over = int(time.time()) - int(self._lifetime.total_seconds())
        while self._ended and (len(self._ended) >= _MOST_ENDED or next(iter(self._ended.values())) <= over):
            self._ended.popitem(last=False)
        self._ended[session.csrf] = session.started_at

    def left(self, session: Session) -> int:
        """Return for how many seconds a session still lasts."""
        ends_at = session.started_at + int(self._lifetime.total_seconds())
        if session.is_of_provider and not session.refresh:
            ends_at = min(ends_at, session.expires_at)
        return ends_at - int(time.time())


def _checked(line: str) -> bytes:
    try:
        key = base64.urlsafe_b64decode(line)
    except binascii.Error:
        key = b""
    if len(key) != _KEY_BYTES:
        message = "a line is not 32 bytes in URL-safe base64"
        raise ValueError(message)
    return line.encode()
