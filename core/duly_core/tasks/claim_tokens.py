"""Claim tokens: a random prefix for each request, and the number of the claim within it.

Who makes the prefix notes it before the request is sent. So what was claimed by a request whose answer never came
can be handed back, without knowing which tasks that were.
"""

import os
from itertools import count

from duly_core.tasks.task import TOKEN_PREFIX_BYTES, Token

_TOKEN_BYTES = 16
_MOST = 1 << 16


def new_prefix() -> bytes:
    """For one request, and for its repeats."""
    return os.urandom(TOKEN_PREFIX_BYTES)


class Tokens:
    """The tokens of one request, in their order."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._numbers = count()

    def take(self, number: int) -> list[Token]:
        """The next tokens. Those beyond the 65,536th are random: they are found by nobody who knows the prefix only."""
        prefix = self._prefix
        return [
            prefix + n.to_bytes(2, "big") if n < _MOST else os.urandom(_TOKEN_BYTES)
            for _, n in zip(range(number), self._numbers, strict=False)  # in this order, or one gets lost
        ]
