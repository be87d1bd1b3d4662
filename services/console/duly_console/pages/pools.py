"""Pools of workers: how many workers each has and is to have, and why; operators change the limits."""

from starlette.responses import Response

from duly_console.errors import PageError
from duly_console.page import PAGE_SIZE, Page, check
from duly_console.rendering import query
from duly_core.pools.rules import MOST_WORKERS
from duly_wire.v1 import pools_pb2


async def show_list(page: Page) -> Response:
    """List pools by name, and say which autoscaler leads."""
    request = pools_pb2.ListPoolsRequest(page_size=PAGE_SIZE, page_token=page.asked("page"))
    answer: pools_pb2.ListPoolsResponse = await page.call(page.stubs.pools.ListPools, request)
    return page.render(
        "pools.html",
        pools=answer.pools,
        leader=_leader(answer),
        first="/pools" if page.asked("page") else "",
        next=query("/pools", page=answer.next_page_token) if answer.next_page_token else "",
    )


async def show(page: Page) -> Response:
    """Show a pool: what was declared, its workers, and the last plan with all reasons."""
    answer = await _read(page)
    (shown,) = answer.pools
    return page.render(
        "pool.html",
        shown=shown,
        leader=_leader(answer),
        most=MOST_WORKERS,
        can_change=page.viewer.may_everywhere("OPERATE"),
    )


async def set_limits(page: Page) -> Response:
    """Change how many workers there may be; the rest of the pool stays."""
    minimum, maximum = _workers(page, "minimum", 0), _workers(page, "maximum", 1)
    if minimum > maximum:
        raise PageError(400, f"The minimum ({minimum:,}) is above the maximum ({maximum:,}).")
    (shown,) = (await _read(page)).pools
    pool, changed_at = shown.pool, shown.changed_at.ToJsonString()
    if page.form.get("changed_at", changed_at) != changed_at:
        raise PageError(
            409,
            f"Somebody changed {pool.name} since this page was loaded. Nothing was changed: load the page again.",
        )
    asked = {"minimum": minimum, "maximum": maximum}
    changed = [name for name, value in asked.items() if value != getattr(pool, name)]
    if not changed:
        raise PageError(400, "Nothing was changed in the form.")
    back = f"/pools/{pool.name}"
    if not page.is_confirmed:
        text = (
            f"{pool.name} may have {pool.minimum:,} to {pool.maximum:,} workers now, and {minimum:,} to {maximum:,} "
            "from the next plan on. The minimum runs in any case. Workers above the maximum drain: they take no more tasks."
        )
        return page.confirm("Change these limits?", text, "Change", back, **asked, changed_at=changed_at)
    new = pools_pb2.NewPool(
        pool=pools_pb2.Pool(name=pool.name, minimum=minimum, maximum=maximum),
        expected_changed_at=shown.changed_at,
    )
    new.update_mask.paths.extend(changed)
    answer: pools_pb2.PutPoolsResponse = await page.call(
        page.stubs.pools.PutPools, pools_pb2.PutPoolsRequest(pools=[new])
    )
    check(answer.results[0].error)
    return page.redirect(back, f"{pool.name} may have {minimum:,} to {maximum:,} workers now.")


def _leader(answer: pools_pb2.ListPoolsResponse) -> pools_pb2.AutoscalerLeader | None:
    return answer.leader if answer.HasField("leader") else None


def _workers(page: Page, name: str, least: int) -> int:
    """Return a number of workers that a form sent.

    Raises:
        PageError: no pool can have so many.
    """
    asked = page.form.get(name, "").strip()
    if (
        asked.isascii()
        and asked.isdecimal()
        and len(asked) <= len(str(MOST_WORKERS))
        and least <= int(asked) <= MOST_WORKERS
    ):
        return int(asked)
    raise PageError(400, f"The {name} must be a whole number from {least} to {MOST_WORKERS:,}.")


async def _read(page: Page) -> pools_pb2.ListPoolsResponse:
    """Return the pool of the address alone, and the leader.

    Raises:
        PageError: no pool has this name.
    """
    name = page.request.path_params["name"]
    request = pools_pb2.ListPoolsRequest(names=[name])
    answer: pools_pb2.ListPoolsResponse = await page.call(page.stubs.pools.ListPools, request)
    if not answer.pools:
        raise PageError(404, f"No pool {name[:100]!r} is declared.")
    return answer
