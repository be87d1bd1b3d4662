"""Many processes' lines on one terminal, each with the name of its process before it."""

import asyncio
import sys
from collections import deque
from typing import BinaryIO

_COLOURS = (36, 33, 32, 35, 34, 31)  # cyan, yellow, green, magenta, blue, red
_BLOCK = 64 * 1024
_LONGEST_LINE = 1024 * 1024


class MergedOutput:
    """One stream of lines from several processes; names are padded to the longest that was announced."""

    def __init__(self, stream: BinaryIO | None = None, *, colour: bool | None = None) -> None:
        self._stream = stream if stream is not None else sys.stdout.buffer
        self._colour = self._stream.isatty() if colour is None else colour
        self._prefixes: dict[str, bytes] = {}

    def announce(self, names: list[str]) -> None:
        """Say which names will come, so that all prefixes are of one width."""
        width = max(map(len, names), default=0)
        for position, name in enumerate(names):
            prefix = f"{name:<{width}} | "
            if self._colour:
                prefix = f"\x1b[{_COLOURS[position % len(_COLOURS)]}m{prefix}\x1b[0m"
            self._prefixes[name] = prefix.encode()

    def write(self, name: str, line: str | bytes) -> None:
        """Write one line. Once nobody reads the stream any more, lines are lost in silence."""
        text = line.encode() if isinstance(line, str) else line
        prefix = self._prefixes.get(name) or f"{name} | ".encode()
        try:
            self._stream.write(prefix + text + b"\n")
            self._stream.flush()
        except (BrokenPipeError, ValueError):
            pass

    async def forward(self, name: str, reader: asyncio.StreamReader, last_lines: deque[bytes]) -> None:
        """Write the lines of one process until it closes its end; leave the newest in `last_lines`."""
        rest = b""
        while block := await reader.read(_BLOCK):
            *lines, rest = (rest + block).split(b"\n")
            if len(rest) > _LONGEST_LINE:
                lines.append(rest)
                rest = b""
            for line in lines:
                self._line(name, line, last_lines)
        if rest:
            self._line(name, rest, last_lines)

    def _line(self, name: str, line: bytes, last_lines: deque[bytes]) -> None:
        last_lines.append(line)
        self.write(name, line)
