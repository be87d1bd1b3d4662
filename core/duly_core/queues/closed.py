"""The error of a queue that its own process has let go of."""

from duly_core.errors import QueueUnavailableError


class ClosedError(QueueUnavailableError):
    """`close` was called before, or while the queue was asked."""

    def __init__(self) -> None:
        super().__init__("the queue was closed")
