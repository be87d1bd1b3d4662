"""What a client shows to servers, and whom it trusts: TLS and a token, given or from the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import grpc

from duly_wire.connection_errors import CredentialsError
from duly_wire.peers import split_addresses
from duly_wire.tls_files import TlsFiles

CA_FILE = "DULY_RPC_CA_FILE"
CERT_FILE = "DULY_RPC_CERT_FILE"
KEY_FILE = "DULY_RPC_KEY_FILE"
TOKEN = "DULY_TOKEN"  # noqa: S105 (the name of a variable)
TOKEN_FILE = "DULY_RPC_TOKEN_FILE"  # noqa: S105 (as above)

ALLOW_PLAINTEXT = "DULY_RPC_ALLOW_PLAINTEXT"

_SCHEME = re.compile(r"^(?:ipv4|ipv6|dns):(?:///)?")


@dataclass(frozen=True, slots=True)
class Credentials:
    """How a channel is opened."""

    tls: grpc.ChannelCredentials | TlsFiles | None = None
    """None: no TLS."""
    token: Callable[[], str] | None = None
    """Returns the token of now; None: none is shown."""

    @classmethod
    def resolve(
        cls, tls: grpc.ChannelCredentials | None, token: str | Callable[[], str] | None
    ) -> Credentials:
        """Return what was given, else what the environment says.

        Raises CredentialsError if a file that it names cannot be read.
        """
        shown = _given(token) if isinstance(token, str) and token else token or _token_of_environment()
        return cls(tls or _tls_of_environment(), shown or None)


def check_secrecy(address: str, credentials: Credentials, *, allow_plaintext: bool) -> None:
    """Raise CredentialsError if a token would be sent to another machine without TLS: who is on the way could use it."""
    is_secret = credentials.token is None or credentials.tls is not None
    if not (is_secret or allow_plaintext or all(map(_is_of_this_machine, split_addresses(address)))):
        raise CredentialsError(
            f"a token would be sent to {address} without TLS: set {CA_FILE}, or {ALLOW_PLAINTEXT}=true if nobody can "
            "listen on the way"
        )


def _is_of_this_machine(address: str) -> bool:
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    host = _SCHEME.sub("", address.strip()).rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def plaintext_is_allowed() -> bool:
    """Return whether the environment says so."""
    return os.environ.get(ALLOW_PLAINTEXT, "").lower() in ("true", "1", "yes", "on")


def _tls_of_environment() -> TlsFiles | None:
    names = CA_FILE, CERT_FILE, KEY_FILE
    authorities, certificate, key = (os.environ.get(name, "") for name in names)
    return TlsFiles(authorities, certificate, key, names) if authorities else None


def _token_of_environment() -> Callable[[], str] | None:
    if token := os.environ.get(TOKEN):
        return _given(token)
    if file := os.environ.get(TOKEN_FILE):
        return TokenFile(Path(file)).read
    return None


def _given(token: str) -> Callable[[], str]:
    _check(token.strip(), "the token")
    return token.strip


def _check(token: str, source: str) -> None:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise CredentialsError(f"{source} is no token: a line of letters, such as duly_..., or a JWT")


class TokenFile:
    """A file that has a token; it is read again when it changes."""

    def __init__(self, file: Path) -> None:
        """Read the file. Raises CredentialsError if that fails."""
        self._file = file
        self._stamp = (0, 0)
        self._token = ""
        self.read()

    def read(self) -> str:
        """Return the token; a file that has become unreadable leaves the one before in force."""
        try:
            stat = self._file.stat()
            if (stat.st_mtime_ns, stat.st_ino) != self._stamp:
                token = self._file.read_text("ascii").strip()
                _check(token, str(self._file))
                self._token, self._stamp = token, (stat.st_mtime_ns, stat.st_ino)
        except (OSError, UnicodeDecodeError, CredentialsError) as error:
            if not self._token:
                raise CredentialsError(f"the token file {self._file} cannot be read: {error}") from error
        return self._token
