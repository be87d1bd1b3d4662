"""Runs commands as at a terminal, and keeps what they print."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

_COLUMNS, _LINES = 80, 50
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PATIENCE = 120.0


class Terminal:
    """A shell of an operator."""

    def __init__(self, address: str, user: str) -> None:
        """Make one whose commands call the Frontend at `address`."""
        self._environment = os.environ | {
            "DULY_ADDRESS": address,
            "LOGNAME": user,
            "TERM": "dumb",
            "NO_COLOR": "1",
        }
        self._environment.pop("COLUMNS", None)

    def run(self, *arguments: str, shown: str | None = None, code: int = 0) -> str:
        """Run `duly` with `arguments`; return the command line and its output as a terminal shows them.

        Raises:
            CalledProcessError: it ended with another exit code than `code`.
        """
        output = self._output([sys.executable, "-m", "duly_cli", *arguments], code)
        return f"$ {shown or 'duly ' + ' '.join(map(_quoted, arguments))}\n{output}"

    def _output(self, command: list[str], expected: int) -> str:
        ours, theirs = pty.openpty()
        try:
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, _COLUMNS, 0, 0))
            process = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
            )
            os.close(theirs)
            output = _read_all(ours)
            code = process.wait(_PATIENCE)
        finally:
            os.close(ours)
        if code != expected:
            raise subprocess.CalledProcessError(code, command, output)
        return output


def _read_all(descriptor: int) -> str:
    parts = []
    while True:
        try:
            part = os.read(descriptor, 65536)
        except OSError:  # EIO: the command has ended
            break
        if not part:
            break
        parts.append(part)
    text = _ESCAPES.sub("", b"".join(parts).decode(errors="replace"))
    return "\n".join(line.rstrip() for line in text.replace("\r\n", "\n").splitlines())


def _quoted(argument: str) -> str:
    return f'"{argument}"' if " " in argument else argument
