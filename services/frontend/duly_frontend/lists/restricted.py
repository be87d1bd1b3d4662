"""Pages of lists by name of which a caller may see a part: the work of one call is bounded, so a page may be short."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from duly_frontend.lists import page_token

Row = TypeVar("Row")
Shown = TypeVar("Shown")


async def read_page(
    token: str,
    size: int,
    most: int,
    read: Callable[[str, int, int], Awaitable[Sequence[Row]]],
    show: Callable[[Row], Shown | None],
    name_of: Callable[[Row], str],
) -> tuple[list[Shown], str]:
    """Return what the caller may see of one page, and the token of the next one; empty: there is none.

    A token names only what the caller has seen, and how many others come behind it.

    Args:
        token: where the page begins.
        size: so many items at most.
        most: so many rows are looked at, at most.
        read: returns the rows behind a name, from a number of them on, up to a limit.
        show: returns an item; None: the caller may not see it. It runs in a thread.
        name_of: returns the name of a row, by which the list is ordered.

    Raises:
        Problem: the token is not one of ours.
    """
    after, skipped = page_token.read_place(token)
    found = await read(after, skipped, most + 1)
    looked_at = found[:most]
    shown = await asyncio.to_thread(lambda: [show(row) for row in looked_at])
    seen = [place for place, item in enumerate(shown) if item is not None]
    page = [item for item in shown if item is not None][:size]
    if len(seen) > size:
        return page, page_token.write_place(name_of(looked_at[seen[size - 1]]), 0)
    if len(found) <= most:
        return page, ""
    if seen:
        return page, page_token.write_place(name_of(looked_at[seen[-1]]), most - 1 - seen[-1])
    return page, page_token.write_place(after, skipped + most)
