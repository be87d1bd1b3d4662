"""What a page answers when it cannot be made."""

import re

import grpc

from duly_core.errors import DulyError


class PageError(DulyError):
    """A page cannot be made, or a change was refused."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class SignInNeededError(DulyError):
    """Nobody is signed in, or the token is no longer valid."""


_STATUSES = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 503,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.UNIMPLEMENTED: 501,
}


_OF_A_CELL = re.compile(r"cell [^:]+: ")
"""A Frontend that serves others says so of a cell that is away (CellUnavailableError)."""


def of_call(error: grpc.aio.AioRpcError) -> DulyError:
    """Return what a failed call of the Frontend means for a page."""
    code = error.code()
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return SignInNeededError("the token is not valid")
    said = error.details() or code.name
    if code is grpc.StatusCode.UNAVAILABLE and _OF_A_CELL.match(said):
        said = f"Not shown: {said}."
    elif code is grpc.StatusCode.UNAVAILABLE:
        said = "The Frontend cannot be reached, or has no connection to Postgres."
    elif code is grpc.StatusCode.UNIMPLEMENTED:
        said = "The Frontend is of an older release, which does not know this."
    return PageError(_STATUSES.get(code, 502), said)
