"""An AttachmentService in memory, for tests of callbacks: it holds what the servers would, and checks it as they do."""

from __future__ import annotations

import hashlib
import threading
from typing import Any

from duly.attachments.service import BEGIN, FETCH, FINISH, UPLOAD, Method, Response
from duly_wire.attachment_rules import divided, hash_of, part_count
from duly_wire.v1 import attachments_pb2, task_pb2


class MemoryService:
    """Attachments of one namespace."""

    calls_at_a_time = 2

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._begun: dict[bytes, tuple[int, list[bytes]]] = {}
        self._parts: dict[tuple[bytes, int], bytes] = {}

    def check(self) -> None:
        """Nobody stops it."""

    def call(self, method: Method[Response], request: Any) -> Response:
        """Answer a request."""
        answers: dict[str, Any] = {
            BEGIN.name: self._begin,
            UPLOAD.name: self._upload,
            FINISH.name: self._finish,
            FETCH.name: self._fetch,
        }
        if method is UPLOAD and isinstance(request, bytes):
            request = attachments_pb2.UploadPartsRequest.FromString(request)
        with self._turn:
            answer: Response = answers[method.name](request)
        return answer

    def content(self, key: bytes) -> bytes:
        """Return what is stored of a hash, as it is stored."""
        return b"".join(self._parts[key, index] for index in range(len(self._begun[key][1])))

    def forget(self, key: bytes) -> None:
        """Forget a hash, as servers do with what is not used or not complete for long."""
        with self._turn:
            self._begun.pop(key, None)
            self._parts = {place: part for place, part in self._parts.items() if place[0] != key}

    def _begin(self, request: attachments_pb2.BeginUploadsRequest) -> attachments_pb2.BeginUploadsResponse:
        response = attachments_pb2.BeginUploadsResponse()
        for upload in request.uploads:
            part_hashes = divided(upload.part_hashes) or [upload.hash][: part_count(upload.size_bytes)]
            assert hash_of(part_hashes) == upload.hash  # noqa: S101 (it is the SDK's own)
            self._begun[upload.hash] = upload.size_bytes, part_hashes
            missing = self._missing(upload.hash)
            response.results.add(stored=not missing, missing_parts=missing)
        return response

    def _missing(self, key: bytes) -> list[int]:
        _, part_hashes = self._begun[key]
        return [index for index in range(len(part_hashes)) if (key, index) not in self._parts]

    def _upload(self, request: attachments_pb2.UploadPartsRequest) -> attachments_pb2.UploadPartsResponse:
        response = attachments_pb2.UploadPartsResponse()
        for part in request.parts:
            assert hashlib.sha256(part.data).digest() == self._begun[part.hash][1][part.index]  # noqa: S101
            self._parts[part.hash, part.index] = part.data
            response.results.add()
        return response

    def _finish(self, request: attachments_pb2.FinishUploadsRequest) -> attachments_pb2.FinishUploadsResponse:
        response = attachments_pb2.FinishUploadsResponse()
        for key in request.hashes:
            response.results.add(missing_parts=self._missing(key))
        return response

    def _fetch(self, request: attachments_pb2.FetchPartsRequest) -> attachments_pb2.FetchPartsResponse:
        response = attachments_pb2.FetchPartsResponse()
        if request.hash not in self._begun:
            response.error.code = task_pb2.ERROR_CODE_NOT_FOUND
            response.error.message = "the task uses no such attachment"
            return response
        response.size_bytes, part_hashes = self._begun[request.hash]
        if not request.indexes:
            response.part_hashes = b"".join(part_hashes)
        for index in request.indexes:
            response.parts.add(hash=request.hash, index=index, data=self._parts[request.hash, index])
        return response
