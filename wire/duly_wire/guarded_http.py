"""Posts requests over pooled connections: no redirect is followed, and no connection goes to an address that is not allowed."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp

from duly_wire.public_addresses import Network, is_allowed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

_IDLE_SECONDS = 15
"""How long a connection stays open without a request: shorter than servers' own limits, or a request meets its end."""
_FAILURE_BODY = 16 * 1024
"""Read of an answer that is no result: then the connection can be used again."""


class ForbiddenAddressError(OSError):
    """A name leads to an address that is not allowed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    # None: it is larger than it may be.
    body: bytes | None


class Sender:
    """Posts requests on the loop of each call; one loop's connections serve all its requests."""

    def __init__(self, allowed: tuple[Network, ...], connect_timeout: timedelta, ca_file: str) -> None:
        """Make a sender. Raises OSError if `ca_file` cannot be read."""
        self._allowed = allowed
        self._connect_timeout = connect_timeout
        self._tls = ssl.create_default_context(cafile=ca_file or None)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session: aiohttp.ClientSession | None = None

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], body_limit: int, timeout: timedelta
    ) -> Answer:
        """Post, and read the answer.

        Raises ForbiddenAddressError, OSError, aiohttp.ClientError and TimeoutError.
        """
        limits = aiohttp.ClientTimeout(
            total=timeout.total_seconds(), connect=self._connect_timeout.total_seconds()
        )
        try:
            async with self._of_loop().post(
                url, data=body, headers=headers, allow_redirects=False, timeout=limits
            ) as response:
                limit = body_limit if 200 <= response.status < 300 else _FAILURE_BODY
                read = await _read(response.content, limit)
                told = {name.lower(): value for name, value in response.headers.items()}
                return Answer(response.status, told, read)
        except aiohttp.ClientConnectorError as error:
            if isinstance(error.os_error, ForbiddenAddressError):
                raise error.os_error from None
            raise

    async def close(self) -> None:
        """Close the connections of this loop. A callback process does not: it ends as a whole."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _of_loop(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            self._loop = loop
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    ssl=self._tls,
                    limit=0,  # slots are the limit
                    keepalive_timeout=_IDLE_SECONDS,
                    socket_factory=self._socket,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # an answer that was asked for plain, and whose size counts as it came
                trust_env=False,  # a proxy would resolve the name itself
                skip_auto_headers=("User-Agent", "Accept-Encoding", "Accept"),
            )
        return self._session

    def _socket(self, info: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
        """Make the socket that is then connected to this very address: no name is resolved between the check and the use."""
        family, kind, protocol, _, address = info
        if not is_allowed(str(address[0]), self._allowed):
            raise ForbiddenAddressError("the address is not allowed")
        return socket.socket(family, kind, protocol)


async def _read(stream: aiohttp.StreamReader, limit: int) -> bytes | None:
    chunks: list[bytes] = []
    size = 0
    async for chunk in stream.iter_any():
        size += len(chunk)
        if size > limit:
            return None
        chunks.append(chunk)
    return b"".join(chunks)
