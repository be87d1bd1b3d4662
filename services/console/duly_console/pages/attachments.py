"""The attachments of a task: a table beside the payload, and each as a download."""

import hashlib
from dataclasses import dataclass
from urllib.parse import quote

import grpc
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from duly_console import events
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
    return _Download(page, linked, name, answer.size_bytes, part_hashes)


class _Download(Response):
    """Sends an attachment part by part. What is wrong is not sent: the connection then ends before the end, which browsers tell.

    It raises nothing: what logs an exception logs what stands in its frames, such as a part.
    """

    def __init__(
        self, page: Page, linked: Linked, name: str, size_bytes: int, part_hashes: list[bytes]
    ) -> None:
        super().__init__(
            headers={
                "content-length": str(size_bytes),
                "content-type": "application/octet-stream",
                "content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
                "content-security-policy": "sandbox; default-src 'none'",
            }
        )
        self._page = page
        self._linked = linked
        self._size_bytes = size_bytes
        self._part_hashes = part_hashes

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        for index in range(len(self._part_hashes)):
            data = await self._part(index)
            if data is None or await self._page.request.is_disconnected():
                return
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _part(self, index: int) -> bytes | None:
        try:
            answer = await _fetch(self._page, self._linked, index)
        except (grpc.aio.AioRpcError, PageError) as error:
            reason = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
        else:
            data: bytes = answer.parts[0].data if answer.parts else b""
            is_whole = len(data) == part_size(self._size_bytes, index)
            if is_whole and hashlib.sha256(data).digest() == self._part_hashes[index]:
                return data
            reason = "the part is not what its hash says"
        events.log.error(
            "download of an attachment ended early", hash=self._linked.hash.hex(), part=index, reason=reason
        )
        return None


async def _fetch(page: Page, linked: Linked, index: int | None) -> attachments_pb2.FetchPartsResponse:
    request = attachments_pb2.FetchPartsRequest(
        task_id=linked.task_id, hash=linked.hash, indexes=[] if index is None else [index]
    )
    answer: attachments_pb2.FetchPartsResponse = await page.call(page.stubs.attachments.FetchParts, request)
    check(answer.error)
    return answer
