"""Shows a process's token with each call; the file is read again when it changes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
from grpc.aio import ClientCallDetails

from duly_core.errors import SettingsError


def show_token(file: Path) -> Sequence[grpc.aio.ClientInterceptor]:
    """Return the interceptors of a channel that show the file's token.

    Raises:
        SettingsError: the file cannot be read.
    """
    token = _Token(file)
    token.read()
    return [_OfCalls(token), _OfStreams(token)]


class _Token:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._stamp = (0, 0)
        self._header = ""

    def read(self) -> str:
        """Return the header; an unreadable file leaves the one before in force.

        Raises:
            SettingsError: it could not be read the first time.
        """
        try:
            stat = self._file.stat()
            if (stat.st_mtime_ns, stat.st_ino) != self._stamp:
                self._header = f"Bearer {self._file.read_text().strip()}"
                self._stamp = (stat.st_mtime_ns, stat.st_ino)
        except (OSError, UnicodeDecodeError) as error:
            if not self._header:
                raise SettingsError(f"rpc.token_file: {self._file} cannot be read: {error}") from error
        return self._header

    def added(self, details: ClientCallDetails) -> ClientCallDetails:
        metadata = grpc.aio.Metadata(*(details.metadata or ()))
        metadata.add("authorization", self.read())
        return details._replace(metadata=metadata)


class _OfCalls(grpc.aio.UnaryUnaryClientInterceptor):
    def __init__(self, token: _Token) -> None:
        self._token = token

    async def intercept_unary_unary(self, continuation: Any, details: ClientCallDetails, request: Any) -> Any:
        return await continuation(self._token.added(details), request)


class _OfStreams(grpc.aio.StreamStreamClientInterceptor):
    def __init__(self, token: _Token) -> None:
        self._token = token

    async def intercept_stream_stream(
        self, continuation: Any, details: ClientCallDetails, requests: Any
    ) -> Any:
        return await continuation(self._token.added(details), requests)
