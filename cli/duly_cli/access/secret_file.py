"""Writes a secret into a file that only its owner reads."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol


class WriteSecret(Protocol):
    """Writes the secret."""

    def __call__(self, secret: str) -> None: ...


@contextmanager
def secret_file(path: Path) -> Iterator[WriteSecret]:
    """Make the file ready before the secret is made: a secret that cannot be stored is lost.

    Readers see the whole secret or what was there before. Raises OSError if it cannot be written.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    # at random: in a container the id of a process that was killed comes again
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

    def write(secret: str) -> None:
        os.write(descriptor, f"{secret}\n".encode())
        os.fsync(descriptor)
        fresh.replace(path)

    try:
        yield write
    finally:
        os.close(descriptor)
        with suppress(FileNotFoundError):
            fresh.unlink()
