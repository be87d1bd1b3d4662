"""The attachments of a task: a table beside the payload, and each as a download."""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import quote

import grpc
from starlette.responses import Response, StreamingResponse

from duly_console.attachment_links import LIFETIME, Linked
from duly_console.errors import PageError
from duly_console.page import Page, check
from duly_wire.attachment_rules import divided, hash_of, name_problem, part_count, part_size
from duly_wire.v1 import attachments_pb2, task_pb2


@dataclass(frozen=True, slots=True)
class Row:
    """An attachment as the table has it."""

    use: task_pb2.AttachmentUse
    path: str
    """Of the download."""


async def rows(page: Page, task_id: str) -> list[Row]:
    """Return the attachments of a task, with links for whoever looks at the page.

    Raises:
        PageError: the person may not see them.
    """
    request = attachments_pb2.ListAttachmentsRequest(task_ids=[task_id])
    try:
        answer: attachments_pb2.ListAttachmentsResponse = await page.call(
            page.stubs.attachments.ListAttachments, request
        )
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:  # a Frontend of an earlier release
            return []
        raise
    (result,) = answer.results
    check(result.error)
    return [
        Row(
            use,
            page.links.write(Linked(task_id, use.hash, use.name), page.viewer.principal, page.session.csrf),
        )
        for use in result.attachments
    ]


async def download(page: Page) -> Response:
    """Send an attachment as a file, whatever it says that it is: a browser must not show it as a page of ours."""
    linked = page.links.read(page.request.path_params["ticket"], page.viewer.principal, page.session.csrf)
    if linked is None:
        raise PageError(
            404,
            f"This link has expired, or is of another session: links last {LIFETIME.total_seconds() / 60:.0f} minutes. Show the "
            "task's payload again.",
        )
    answer = await _fetch(page, linked, None)
    part_hashes = divided(answer.part_hashes)
    if hash_of(part_hashes) != linked.hash or len(part_hashes) != part_count(answer.size_bytes):
        raise PageError(502, "The Frontend told other parts than the attachment's hash says.")
    name = "attachment" if name_problem(linked.name) else linked.name
    return StreamingResponse(
        _parts(page, linked, answer.size_bytes, part_hashes),
        media_type="application/octet-stream",
        headers={
            "content-length": str(answer.size_bytes),
            "content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
            "content-security-policy": "sandbox; default-src 'none'",
        },
    )


async def _parts(
    page: Page, linked: Linked, size_bytes: int, part_hashes: list[bytes]
) -> AsyncIterator[bytes]:
    """Yield the content. What is wrong is not sent: the download then ends before its length, which browsers tell."""
    for index, part_hash in enumerate(part_hashes):
        answer = await _fetch(page, linked, index)
        data = answer.parts[0].data if answer.parts else b""
        if len(data) != part_size(size_bytes, index) or hashlib.sha256(data).digest() != part_hash:
            raise PageError(502, f"part {index} of attachment {linked.hash.hex()} is not what its hash says")
        yield data


async def _fetch(page: Page, linked: Linked, index: int | None) -> attachments_pb2.FetchPartsResponse:
    request = attachments_pb2.FetchPartsRequest(
        task_id=linked.task_id, hash=linked.hash, indexes=[] if index is None else [index]
    )
    answer: attachments_pb2.FetchPartsResponse = await page.call(page.stubs.attachments.FetchParts, request)
    check(answer.error)
    return answer
