"""The rule of a ramp: which of the new tasks of a lambda go to one of its versions (decision 0098)."""

from hashlib import blake2b
from typing import NamedTuple

WHOLE = 1_000
"""Tenths of a percent."""


class Ramp(NamedTuple):
    """So much of the new tasks of a lambda goes to the queue of one of its versions."""

    version: str
    permille: int
    """Tenths of a percent."""

    def takes(self, lambda_name: str, key: bytes) -> bool:
        """Tell whether a task goes to the version. What a ramp takes, one of more percent takes, too.

        `key` is what stays together: that of the session, the fair key, or else the id of the task.

        >>> [Ramp("2.0", each).takes("mail.send", b"ada") for each in (0, 999, 1_000)]
        [False, True, True]
        """
        digest = blake2b(lambda_name.encode() + b"\0" + key, digest_size=8).digest()
        return int.from_bytes(digest, "big") % WHOLE < self.permille

    def __str__(self) -> str:
        return f"{self.permille / 10:g}% to version {self.version}"


def together(session: str, fair_key: str, task_id: bytes) -> bytes:
    """Return what a task has in common with those that go where it goes."""
    return (session or fair_key).encode() or task_id
