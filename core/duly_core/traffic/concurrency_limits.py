"""Bounds how many calls of one kind are under way: reads are refused long before they take what writes need."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from duly_core.errors import OverloadedError

_RETRY_AFTER = timedelta(seconds=1)


class Admission:
    """Refuses calls beyond `most`; `what` names them in the refusal."""

    def __init__(self, most: int, what: str) -> None:
        self._most = most
        self._what = what
        self._under_way = 0

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Let a call be under way within this.

        Raises:
            OverloadedError: too many are.
        """
        if self._under_way >= self._most:
            message = f"too many {self._what} are under way: try again later"
            raise OverloadedError(message, _RETRY_AFTER)
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
