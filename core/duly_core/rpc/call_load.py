"""What a server lets one caller have at a time, so that it delays nobody else."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from duly_core.access.current import current_access, set_peer
from duly_core.rpc.requests.field_count import counting_fields
from duly_core.traffic.slices import Slices, Steps
from duly_core.traffic.turns import Turns

Handler = Callable[[Any, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class CallLoad:
    """The bounds of one server."""

    calls: Turns
    """Of calls under way."""
    large: Slices
    """Reads and checks what is large."""
    waiting: frozenset[str] = frozenset()
    """Names of the methods whose calls do nothing but wait: they take no turns."""

    def wrap(self, serve: Handler, method: str) -> Handler:
        """Return what serves the calls of a method within these bounds."""
        return _noted(serve) if method in self.waiting else in_turn(serve, self.calls)


def note_caller(peer: Callable[[], str]) -> str:
    """Remember who makes this call; return it. `peer` tells the connection."""
    caller = current_access().principal
    if not caller:
        caller = peer()
        set_peer(caller)
    return caller


def in_turn(serve: Handler, turns: Turns) -> Handler:
    """Return what serves a call when it is its caller's turn."""

    async def wait_and_serve(request: Any, context: Any) -> Any:
        caller = note_caller(context.peer)
        if not turns.try_enter(caller):
            await turns.enter(caller)
        try:
            return await serve(request, context)
        finally:
            turns.leave(caller)

    return wait_and_serve


def _noted(serve: Handler) -> Handler:
    async def note_and_serve(request: Any, context: Any) -> Any:
        note_caller(context.peer)
        return await serve(request, context)

    return note_and_serve


def reading(data: bytes, read: Callable[[bytes], Message], message: Any) -> Steps[Message]:
    """Read a large request in steps; the first one is nothing, so that it waits for its turn.

    `message` is its descriptor; None: its fields are not counted.
    """
    yield
    if message is not None:
        yield from counting_fields(data, message)
        yield
    return read(data)
