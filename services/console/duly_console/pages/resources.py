"""Resources: what is used of them; operators change their capacity."""

from starlette.responses import Response

from duly_console.errors import PageError
from duly_console.page import PAGE_SIZE, Page, check
from duly_console.rendering import query
from duly_wire.v1 import limits_pb2

_KEYS_SHOWN = 5
_MOST_UNITS = 1_000_000


async def show_list(page: Page) -> Response:
    """List resources by name."""
    request = limits_pb2.ListResourcesRequest(
        page_size=PAGE_SIZE, page_token=page.asked("page"), max_keys=_KEYS_SHOWN
    )
    answer: limits_pb2.ListResourcesResponse = await page.call(page.stubs.limits.ListResources, request)
    return page.render(
        "resources.html",
        resources=answer.resources,
        can_change=page.viewer.may_everywhere("OPERATE"),
        first="/resources" if page.asked("page") else "",
        next=query("/resources", page=answer.next_page_token) if answer.next_page_token else "",
    )


async def set_capacity(page: Page) -> Response:
    """Change the capacity of a resource; the rest of it stays. A form without a capacity is asked for it."""
    name, asked, back = (
        page.form.get("name", ""),
        page.form.get("capacity", "").strip(),
        page.back("/resources"),
    )
    if "capacity" not in page.form:
        return page.render("capacity.html", resource=await _read(page, name), back=back)
    if not (asked.isascii() and asked.isdecimal() and len(asked) <= 7 and int(asked) <= _MOST_UNITS):
        raise PageError(400, f"The capacity must be a whole number from 0 to {_MOST_UNITS:,}.")
    resource = await _read(page, name)
    limit, changed_at = resource.limit, resource.changed_at.ToJsonString()
    if page.form.get("changed_at", changed_at) != changed_at:
        raise PageError(
            409,
            f"Somebody changed {name} since this page was loaded. Nothing was changed: load the page again.",
        )
    if not page.is_confirmed:
        before = f"{limit.capacity:,}" if limit.HasField("capacity") else "without a limit"
        cells = len(resource.cells)
        each = f" in each of {cells} cells" if cells > 1 else ""
        text = (
            f"The capacity of {name} is {before} now, and becomes {int(asked):,}{each}. More releases parked tasks at once; "
            "with less, those that run end as they are."
        )
        return page.confirm(
            "Change this capacity?",
            text,
            "Change",
            back,
            name=name,
            capacity=asked,
            back=back,
            changed_at=changed_at,
        )
    request = limits_pb2.PutResourceRequest(
        resources=[limits_pb2.ResourceLimit(name=name, capacity=int(asked))],
        expected_changed_at={name: resource.changed_at},
    )
    request.update_masks[name].paths.append("capacity")
    answer: limits_pb2.PutResourceResponse = await page.call(page.stubs.limits.PutResource, request)
    check(answer.results[0].error)
    return page.redirect(back, f"The capacity of {name} is {int(asked):,} now.")


async def _read(page: Page, name: str) -> limits_pb2.Resource:
    """Return a resource as it is now.

    Raises:
        PageError: no resource has this name.
    """
    token = ""
    while True:
        request = limits_pb2.ListResourcesRequest(page_size=1_000, page_token=token)
        answer: limits_pb2.ListResourcesResponse = await page.call(page.stubs.limits.ListResources, request)
        for each in answer.resources:
            if each.limit.name == name:
                return each
        token = answer.next_page_token
        if not token:
            raise PageError(404, f"No resource {name[:100]!r} is declared.")
