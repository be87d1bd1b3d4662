"""What a task printed and logged: beside its payload, and renewed while the task runs."""

import re
from dataclasses import dataclass

import grpc
from starlette.responses import RedirectResponse, Response

from duly_console.attachment_links import LIFETIME, Linked
from duly_console.errors import PageError
from duly_console.page import Page, check
from duly_wire.v1 import output_pb2

_SHOWN_BYTES = 64 * 1024
_OUTPUT = b""
"""In place of an attachment's hash."""
# Control characters but tab and line feed, and marks that turn the direction of text.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Output:
    """The end of what the last run wrote."""

    path: str
    """Where the next look at it is; empty: nothing more comes."""
    text: str = ""
    run: int = 0
    bytes_before: int = 0
    """How many bytes the run wrote before these."""
    is_encrypted: bool = False
    has_expired: bool = False
    """The person was shown it too long ago."""


async def read(page: Page, task_id: str, path: str = "") -> Output:
    """Return the output of a task. `path` is that of the first look, which expires with it.

    Raises:
        PageError: the person may not see it.
    """
    path = path or page.links.write(
        Linked(task_id, _OUTPUT, ""), page.viewer.principal, page.session.csrf, "output"
    )
    request = output_pb2.ReadOutputRequest(task_id=task_id, last_run=True, tail_bytes=_SHOWN_BYTES)
    try:
        answer: output_pb2.ReadOutputResponse = await page.call(page.stubs.output.ReadOutput, request)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:  # a Frontend of an earlier release
            return Output("")
        raise
    check(answer.error)
    return of_chunks(answer, "" if answer.complete else path)


def of_chunks(answer: output_pb2.ReadOutputResponse, path: str) -> Output:
    """Return the end of the last run of an answer, as a page can carry it."""
    if not answer.chunks:
        return Output(path)
    run = answer.chunks[-1].fence
    chunks = [chunk for chunk in answer.chunks if chunk.fence == run]
    if any(chunk.HasField("encrypted") for chunk in chunks):
        return Output(path, run=run, is_encrypted=True)
    data = b"".join(piece.data for chunk in chunks for piece in chunk.plain.pieces)
    shown = data[-_SHOWN_BYTES:]
    before = chunks[0].position + len(data) - len(shown)
    return Output(path, _safe(shown.decode("utf-8", "replace")), run, before)


def _safe(text: str) -> str:
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


async def show(page: Page) -> Response:
    """Show the output again to whoever was shown it a short time ago."""
    ticket = page.request.path_params["ticket"]
    linked = page.links.read(ticket, page.viewer.principal, page.session.csrf)
    if linked is None:
        minutes = LIFETIME.total_seconds() / 60
        if page.is_fragment:
            return page.render("output.html", output=Output("", has_expired=True), minutes=minutes)
        raise PageError(
            404, f"This link has expired, or is of another session: links last {minutes:.0f} minutes."
        )
    if linked.hash != _OUTPUT:
        raise PageError(404, "This link leads to an attachment.")
    if not page.is_fragment:
        return RedirectResponse(f"/tasks/{linked.task_id}", status_code=303)
    return page.render("output.html", output=await read(page, linked.task_id, page.request.url.path))
