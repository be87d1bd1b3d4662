"""The files of a client's TLS, which are read again when they change."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import grpc

from duly_wire.connection_errors import CredentialsError

SYSTEM_AUTHORITIES = "system"

_LOOK_EVERY_S = 1.0

_Stamp = tuple[tuple[int, int] | None, ...]


class TlsFiles:
    """Authorities and, for servers that ask for one, a certificate with its key. Any threads may share it."""

    def __init__(self, authorities: str, certificate: str, key: str, names: Sequence[str]) -> None:
        """Read them; `names` are those of the three settings. Raises CredentialsError if that fails."""
        self._paths = (authorities, certificate, key)
        self._names = tuple(names)
        self._looking = threading.Lock()
        self._look_again_at = time.monotonic() + _LOOK_EVERY_S
        self._stamp = self._seen = self._look()
        self.newest = self._read()
        self.generation = 0

    def refresh(self) -> int:
        """Look at the files, once a second at most, and return how often they were replaced.

        Files are taken when two looks saw the same, and they fit each other: replacing them takes more than one step.
        """
        if time.monotonic() < self._look_again_at or not self._looking.acquire(blocking=False):
            return self.generation
        try:
            self._look_again_at = time.monotonic() + _LOOK_EVERY_S
            self._seen, before = self._look(), self._seen
            if self._seen == before != self._stamp:
                self._stamp = self._seen
                self.newest = self._read()
                self.generation += 1
        except CredentialsError:
            pass  # those before stay in force until others come
        finally:
            self._looking.release()
        return self.generation

    def _look(self) -> _Stamp:
        return tuple(map(_stamp, self._paths))

    def _read(self) -> grpc.ChannelCredentials:
        authorities, certificate, key = self._paths
        roots = None if authorities == SYSTEM_AUTHORITIES else self._content(0)
        if not certificate:
            return grpc.ssl_channel_credentials(roots)
        if not key:
            raise CredentialsError(
                f"{self._names[1]} needs {self._names[2]}: the private key of the certificate"
            )
        pair = self._content(2), self._content(1)
        try:
            # without a password nobody is asked for one
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate, key, password="")
        except (OSError, ValueError) as error:
            raise CredentialsError(
                f"{self._names[1]} and {self._names[2]}: {certificate} and {key} are not a certificate and its key, "
                f"both PEM and without a password: {error}"
            ) from error
        return grpc.ssl_channel_credentials(roots, *pair)

    def _content(self, which: int) -> bytes:
        try:
            return Path(self._paths[which]).read_bytes()
        except OSError as error:
            raise CredentialsError(
                f"{self._names[which]}: {self._paths[which]} cannot be read: {error.strerror}"
            ) from error


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        stat = Path(path).stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino
