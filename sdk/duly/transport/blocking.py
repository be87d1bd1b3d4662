"""Makes methods of the blocking client from those of AsyncClient: the same arguments, and the value instead of an awaitable."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from duly.client import AsyncClient
from duly.tasks.arguments import check_call
from duly.watches.watch import BlockingWatch, Watch

Given = ParamSpec("Given")
Value = TypeVar("Value")


class Blocking(ABC):
    """Has an AsyncClient, and a thread that runs its coroutines."""

    _client: AsyncClient

    @abstractmethod
    def _run(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        """Run a coroutine on the client's loop and return its value, or raise what it raises."""


def blocking(
    method: Callable[Concatenate[AsyncClient, Given], Coroutine[Any, Any, Value]], *, drawn: str = ""
) -> Callable[Concatenate[Blocking, Given], Value]:
    """Return the method that runs `method` and waits for it.

    `drawn` names its first parameter, if that is an iterable which is to be read in the caller's thread: a generator's
    database session, say, belongs to the thread that made it.
    """

    @functools.wraps(method)
    def run(self: Blocking, *args: Any, **kwargs: Any) -> Any:
        if drawn in kwargs:
            kwargs[drawn] = _read(kwargs[drawn])
        elif drawn and args:
            args = (_read(args[0]), *args[1:])
        return self._run(_called(method, self._client, args, kwargs))

    return _documented(run)


def iterating(
    method: Callable[Concatenate[AsyncClient, Given], AsyncIterator[Value]],
    pages: Callable[Concatenate[AsyncClient, Given], AsyncIterator[Sequence[Value]]],
) -> Callable[Concatenate[Blocking, Given], Iterator[Value]]:
    """Return the method that yields what `method` does; `pages` yields the same a page at a time."""

    @functools.wraps(method)
    def iterate(self: Blocking, *args: Any, **kwargs: Any) -> Any:
        found = _called(pages, self._client, args, kwargs)

        async def next_page() -> Sequence[Value] | None:
            return await anext(found, None)

        while (page := self._run(next_page())) is not None:
            yield from page

    return _documented(iterate)


def watching(
    method: Callable[Concatenate[AsyncClient, Given], Coroutine[Any, Any, Watch]],
) -> Callable[Concatenate[Blocking, Given], BlockingWatch]:
    """Return the method that begins a watch which is read without an event loop."""

    @functools.wraps(method)
    def begin(self: Blocking, *args: Any, **kwargs: Any) -> Any:
        return BlockingWatch(self._run(_called(method, self._client, args, kwargs)), self._run)

    return _documented(begin)


def _called(
    method: Callable[..., Value], client: AsyncClient, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Value:
    """Call a method, which runs nothing yet. Raises InvalidTaskError for an argument that it does not take."""
    try:
        return method(client, *args, **kwargs)
    except TypeError:
        check_call(method, kwargs)
        raise


def _read(items: Any) -> Any:
    return items if isinstance(items, str) else [*items]  # a text in place of a list is refused later


def _documented(method: Callable[..., Any]) -> Callable[..., Any]:
    """Take what blocking callers do not write out of the examples, and out of what `help` shows."""
    signature = inspect.signature(method)
    result = str(signature.return_annotation).replace("AsyncIterator", "Iterator")
    if result == "Watch":
        result = "BlockingWatch"
    method.__signature__ = signature.replace(return_annotation=result)  # type: ignore[attr-defined]
    method.__qualname__ = f"Client.{method.__name__}"
    method.__doc__ = (method.__doc__ or "").replace("await ", "").replace("async ", "")
    return method
