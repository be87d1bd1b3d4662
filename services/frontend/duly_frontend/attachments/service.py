"""AttachmentService: takes the parts of attachments, and gives them to whoever may read the tasks that use them."""

from collections.abc import Mapping
from uuid import UUID

from duly_core.access.current import current_access, current_caller, denied, require
from duly_core.access.roles import Action
from duly_core.attachments import store as store_attachments
from duly_core.attachments.blobs import BlobThreads, put_checked
from duly_core.attachments.ownership import is_ours
from duly_core.attachments.rules import (
    AttachmentError,
    Hash,
    check_hash,
    check_upload,
)
from duly_core.attachments.settings import AttachmentSettings
from duly_core.attachments.store import Begun, ExpectedPart, StoredAttachment, Upload
from duly_core.errors import InvalidRequestError, NoAttachmentStoreError
from duly_core.lambdas.cache import LambdaCache
from duly_core.lambdas.names import namespace_of
from duly_core.rpc.requests.attachment_uses import use_to_wire
from duly_core.rpc.requests.checks import check_count
from duly_core.rpc.requests.names import check_lambda_name, unknown_lambda
from duly_core.rpc.requests.new_tasks import parse_task_id
from duly_core.rpc.requests.problem import Problem, check_each
from duly_core.rpc.stubs import Context
from duly_core.tasks.scope import task_origins
from duly_core.traffic.turns import Turns
from duly_frontend import events
from duly_frontend.access.reach import readable, refused
from duly_frontend.stores import FrontendStores
from duly_frontend.tasks.wire import NO_SUCH_TASK
from duly_wire.attachment_rules import HASH_BYTES, PART_BYTES, part_count, part_size
from duly_wire.ids import TaskId
from duly_wire.v1 import attachments_pb2, attachments_pb2_grpc, task_pb2

_MOST = 100
"""Items of a call."""
_MOST_PARTS = 10_000
"""Of all attachments that a call begins or finishes to upload."""
_MOST_FETCHED_BYTES = PART_BYTES
"""Of a call: one whole part, or several smaller ones."""
_TOKEN_BYTES = 16


class AttachmentServicer(attachments_pb2_grpc.AttachmentServiceServicer):
    """Each item is answered for itself. What may be repeated may be repeated at any Frontend: none remembers an upload."""

    def __init__(
        self,
        stores: FrontendStores,
        settings: AttachmentSettings,
        known: LambdaCache,
        blobs: BlobThreads | None,
        turns: Turns,
        answers: Turns,
    ) -> None:
        """Make one.

        Args:
            stores: of what is known of attachments.
            settings: bounds of sizes.
            known: the registered lambdas.
            blobs: where the content is; None: this installation has no attachments.
            turns: those of callers whose parts are written or read.
            answers: those of callers that have not read all that they fetched.
        """
        self._stores = stores
        self._settings = settings
        self._known = known
        self._blobs = blobs
        self._turns = turns
        self._answers = answers
        self._is_ours = False
        """Whether the store of blobs was found to be this database's."""

    async def BeginUploads(  # noqa: N802 (the wire's name)
        self, request: attachments_pb2.BeginUploadsRequest, _context: Context
    ) -> attachments_pb2.BeginUploadsResponse:
        blobs, namespace = await self._uploading(getattr(request, "lambda"))
        check_count("uploads", len(request.uploads), _MOST)
        if sum(part_count(max(0, each.size_bytes)) for each in request.uploads) > _MOST_PARTS:
            raise InvalidRequestError(
                "uploads", f"have more than {_MOST_PARTS:,} parts: begin fewer in one call"
            )
        checked = check_each(self._upload, request.uploads)
        uploads = {each.hash: each for each in checked if isinstance(each, Upload)}
        if len(uploads) < sum(isinstance(each, Upload) for each in checked):
            raise InvalidRequestError("uploads", "name a hash twice")
        await self._check_ours(blobs)
        begun = await store_attachments.begin_uploads(
            self._stores.writes, namespace, list(uploads.values()), self._settings.quota
        )
        results = []
        for each in checked:
            if isinstance(each, Problem):
                results.append(attachments_pb2.BeginUploadResult(error=each.to_wire()))
            else:
                results.append(await self._begun(blobs, each, begun[each.hash], namespace))
        return attachments_pb2.BeginUploadsResponse(results=results)

    def _upload(self, asked: attachments_pb2.AttachmentUpload) -> Upload:
        try:
            part_hashes = check_upload(
                asked.hash, asked.size_bytes, asked.part_hashes, self._settings.max_bytes
            )
        except AttachmentError as error:
            raise Problem(error.field, error.message) from error
        return Upload(asked.hash, asked.size_bytes, part_hashes)

    async def _begun(
        self, blobs: BlobThreads, upload: Upload, begun: Begun, namespace: str
    ) -> attachments_pb2.BeginUploadResult:
        if begun.over_quota:
            problem = Problem(
                "size_bytes",
                f"{upload.size_bytes:,} bytes more would exceed the {self._settings.quota:,} that the attachments of "
                f"{_named(namespace)} may have (attachments.quota): purge tasks whose attachments are no longer needed, or "
                "let the operator raise the quota",
                task_pb2.ERROR_CODE_ATTACHMENT_QUOTA_EXCEEDED,
            )
            return attachments_pb2.BeginUploadResult(error=problem.to_wire())
        if begun.other_size is not None:
            problem = Problem(
                "size_bytes",
                f"an attachment with this hash is stored, and has {begun.other_size:,} bytes: one of them consists of the hashes "
                "of the other's parts. Change a byte of this one",
            )
            return attachments_pb2.BeginUploadResult(error=problem.to_wire())
        if begun.blob is None:
            events.attachment_bytes.labels("deduplicated").inc(upload.size_bytes)
            return attachments_pb2.BeginUploadResult(stored=True)
        there = {} if begun.is_new else await self._sizes(blobs, begun.blob)
        return attachments_pb2.BeginUploadResult(missing_parts=_missing(upload.size_bytes, there))

    async def UploadParts(  # noqa: N802
        self, request: attachments_pb2.UploadPartsRequest, _context: Context
    ) -> attachments_pb2.UploadPartsResponse:
        blobs, namespace = await self._uploading(getattr(request, "lambda"))
        check_count("parts", len(request.parts), _MOST)
        asked = check_each(_part, request.parts)
        names = [each for each in asked if not isinstance(each, Problem)]
        expected = iter(
            await store_attachments.expected_parts(self._stores.reads, namespace, names, self._settings.grace)
        )
        results = []
        async with self._turns.turn(current_caller()):
            for each, part in zip(asked, request.parts, strict=True):
                try:
                    if isinstance(each, Problem):
                        raise each
                    await _put(blobs, next(expected), part)
                    results.append(attachments_pb2.UploadPartResult())
                except Problem as problem:
                    results.append(attachments_pb2.UploadPartResult(error=problem.to_wire()))
        return attachments_pb2.UploadPartsResponse(results=results)

    async def FinishUploads(  # noqa: N802
        self, request: attachments_pb2.FinishUploadsRequest, _context: Context
    ) -> attachments_pb2.FinishUploadsResponse:
        blobs, namespace = await self._uploading(getattr(request, "lambda"))
        check_count("hashes", len(request.hashes), _MOST)
        asked = check_each(_hash, request.hashes)
        known = await store_attachments.unfinished_uploads(
            self._stores.writes, namespace, {each for each in asked if isinstance(each, bytes)}
        )
        if sum(part_count(each.size_bytes) for each in known.values() if not each.is_stored) > _MOST_PARTS:
            raise InvalidRequestError(
                "hashes", f"are of more than {_MOST_PARTS:,} parts: finish fewer in one call"
            )
        missing: dict[Hash, list[int]] = {}
        whole = {}
        for content_hash, upload in known.items():
            if upload.is_stored:
                continue
            there = await self._sizes(blobs, upload.blob)
            missing[content_hash] = _missing(upload.size_bytes, there)
            if not missing[content_hash]:
                await blobs.run(blobs.blobs.sync, upload.blob)
                whole[content_hash] = upload.blob
        finished = await store_attachments.finish_uploads(self._stores.writes, namespace, whole)
        results = []
        for each in asked:
            if isinstance(each, Problem):
                results.append(attachments_pb2.FinishUploadResult(error=each.to_wire()))
            elif missing.get(each):
                results.append(
                    attachments_pb2.FinishUploadResult(
                        missing_parts=missing[each], error=_INCOMPLETE.to_wire()
                    )
                )
            elif each in finished or (each in known and known[each].is_stored):
                events.attachment_bytes.labels("stored").inc(
                    known[each].size_bytes if each in finished else 0
                )
                results.append(attachments_pb2.FinishUploadResult())
            else:
                results.append(attachments_pb2.FinishUploadResult(error=_NOT_BEGUN.to_wire()))
        return attachments_pb2.FinishUploadsResponse(results=results)

    async def _sizes(self, blobs: BlobThreads, blob: UUID) -> Mapping[int, int]:
        """Return the sizes of the parts that are there, when it is the caller's turn: there may be many."""
        async with self._turns.turn(current_caller()):
            return await blobs.run(blobs.blobs.sizes, blob)

    async def FetchParts(  # noqa: N802
        self, request: attachments_pb2.FetchPartsRequest, context: Context
    ) -> attachments_pb2.FetchPartsResponse:
        if len(request.indexes) > _MOST:
            raise InvalidRequestError(
                "indexes", f"there may be at most {_MOST}, not {len(request.indexes):,}"
            )
        try:
            check_hash(request.hash)
        except AttachmentError as error:
            raise InvalidRequestError(error.field, error.message) from error
        if request.claim_token and len(request.claim_token) != _TOKEN_BYTES:
            raise InvalidRequestError("claim_token", f"must be {_TOKEN_BYTES} bytes, or be left out")
        try:
            task_id = parse_task_id(request.task_id)
            found = await self._readable(task_id, request.hash, request.claim_token)
            if request.indexes:
                await self._answers.enter(caller := current_caller())
                context.add_done_callback(lambda _: self._answers.leave(caller))
            return await self._fetched(self._there(), found, request)
        except Problem as problem:
            return attachments_pb2.FetchPartsResponse(error=problem.to_wire())

    async def _readable(self, task_id: TaskId, content_hash: Hash, token: bytes) -> StoredAttachment:
        """Return an attachment that the caller may read.

        Raises:
            Problem: it may not, or the task does not use it.
        """
        if token:
            name = await store_attachments.claimed_lambda(self._stores.reads, task_id, token)
            if name is None:
                raise _NO_SUCH_CLAIM
            require(Action.RUN, name)
        else:
            await self._check_readable(task_id)
        found = await store_attachments.used_by_task(self._stores.reads, task_id, content_hash)
        if found is None and token:
            found = await store_attachments.used_by_predecessors(self._stores.reads, task_id, content_hash)
        if found is None:
            raise Problem("hash", "the task uses no such attachment", task_pb2.ERROR_CODE_NOT_FOUND)
        return found

    async def _check_readable(self, task_id: TaskId) -> None:
        seen = await readable(self._stores.reads, [task_id])
        if isinstance(seen.ids[0], Problem):
            raise seen.ids[0]
        if task_id in seen.withheld:
            origins = await task_origins(self._stores.reads, [task_id])
            if task_id not in origins:
                raise NO_SUCH_TASK
            raise refused(Action.READ_PAYLOAD, origins[task_id].lambda_name, "task_id")

    async def _fetched(
        self,
        blobs: BlobThreads,
        found: StoredAttachment,
        request: attachments_pb2.FetchPartsRequest,
    ) -> attachments_pb2.FetchPartsResponse:
        count = part_count(found.size_bytes)
        if not request.indexes:
            return attachments_pb2.FetchPartsResponse(
                size_bytes=found.size_bytes, part_hashes=found.part_hashes
            )
        for index in request.indexes:
            if not 0 <= index < count:
                raise Problem("indexes", f"there is no part {index}: it has {count:,} parts, from 0")
        response = attachments_pb2.FetchPartsResponse(size_bytes=found.size_bytes)
        left = _MOST_FETCHED_BYTES
        async with self._turns.turn(current_caller()):
            for index in request.indexes:
                size = part_size(found.size_bytes, index)
                if response.parts and size > left:
                    break
                data = await blobs.run(blobs.blobs.get, found.blob, index)
                if data is None or len(data) != size:
                    events.log.error(
                        "a part of an attachment is not there",
                        hash=request.hash.hex(),
                        part=index,
                        blob=str(found.blob),
                    )
                    raise _LOST
                left -= size
                response.parts.add(hash=request.hash, index=index, data=data)
                events.attachment_bytes.labels("fetched").inc(size)
        return response

    async def ListAttachments(  # noqa: N802
        self, request: attachments_pb2.ListAttachmentsRequest, _context: Context
    ) -> attachments_pb2.ListAttachmentsResponse:
        check_count("task_ids", len(request.task_ids), _MOST)
        seen = await readable(self._stores.reads, check_each(parse_task_id, request.task_ids))
        ids = [each for each in seen.ids if isinstance(each, bytes)]
        origins = await task_origins(self._stores.reads, ids)
        uses = await store_attachments.uses_of(self._stores.reads, ids)
        results = []
        for each in seen.ids:
            if isinstance(each, Problem) or each not in origins:
                problem = each if isinstance(each, Problem) else NO_SUCH_TASK
                results.append(attachments_pb2.ListAttachmentsResult(error=problem.to_wire()))
            elif each in seen.withheld:
                problem = refused(Action.READ_PAYLOAD, origins[each].lambda_name, "task_ids")
                results.append(attachments_pb2.ListAttachmentsResult(error=problem.to_wire()))
            else:
                results.append(
                    attachments_pb2.ListAttachmentsResult(attachments=map(use_to_wire, uses.get(each, ())))
                )
        return attachments_pb2.ListAttachmentsResponse(results=results)

    async def _check_ours(self, blobs: BlobThreads) -> None:
        """Let nobody upload to where another database would remove it."""
        self._is_ours = self._is_ours or await is_ours(self._stores.reads, blobs)
        if not self._is_ours:
            raise NoAttachmentStoreError(
                "another database keeps its attachments there, and would remove those of this one: let the operator set "
                "attachments.folder, or attachments.prefix, to another; or remove `store-id` from it if that database is gone"
            )

    def _there(self) -> BlobThreads:
        if self._blobs is None:
            raise NoAttachmentStoreError(
                'this installation stores no attachments: let the operator set attachments.store to "folder" or "s3" (`duly up` '
                "has a folder)"
            )
        return self._blobs

    async def _uploading(self, name: str) -> tuple[BlobThreads, str]:
        """Return where attachments of a lambda go, and its namespace, if the caller may upload for it.

        Raises:
            PermissionDeniedError: it may not.
            InvalidRequestError: no such lambda is registered.
            NoAttachmentStoreError: there are no attachments.
        """
        check_lambda_name("lambda", name)
        access = current_access()
        if not (access.may(Action.SCHEDULE, name) or access.may(Action.RUN, name)):
            raise denied(access, Action.SCHEDULE, name)
        known = await self._known.payload_limits({name})
        if name not in known:
            raise Problem("lambda", unknown_lambda(name, known), task_pb2.ERROR_CODE_UNKNOWN_LAMBDA)
        return self._there(), namespace_of(name)


_INCOMPLETE = Problem(
    "hashes", "some of its parts are missing: upload them first", task_pb2.ERROR_CODE_ATTACHMENT_MISSING
)
_NOT_BEGUN = Problem(
    "hash",
    "no such upload is under way: begin it, or begin it again if it was idle for longer than attachments.grace",
    task_pb2.ERROR_CODE_ATTACHMENT_MISSING,
)
_NO_SUCH_CLAIM = Problem(
    "claim_token",
    "the task is not held under this token: its claim was lost, or the task has ended",
    task_pb2.ERROR_CODE_NOT_FOUND,
)
_LOST = Problem(
    "hash",
    "its content is not where it was stored: an operator finds more in the Frontend's log",
    task_pb2.ERROR_CODE_ATTACHMENT_MISSING,
)


def _named(namespace: str) -> str:
    return f"namespace {namespace!r}" if namespace else "the default namespace"


def _missing(size_bytes: int, there: Mapping[int, int]) -> list[int]:
    return [
        index for index in range(part_count(size_bytes)) if there.get(index) != part_size(size_bytes, index)
    ]


def _hash(content_hash: bytes) -> Hash:
    if len(content_hash) != HASH_BYTES:
        raise Problem("hashes", f"must be {HASH_BYTES} bytes each")
    return content_hash


def _part(asked: attachments_pb2.AttachmentPart) -> tuple[Hash, int]:
    if len(asked.hash) != HASH_BYTES:
        raise Problem("hash", f"must be {HASH_BYTES} bytes")
    if asked.index < 0:
        raise Problem("index", "must not be negative")
    if not 1 <= len(asked.data) <= PART_BYTES:
        raise Problem("data", f"a part has 1 to {PART_BYTES:,} bytes, not {len(asked.data):,}")
    return asked.hash, asked.index


async def _put(
    blobs: BlobThreads, expected: ExpectedPart | None, part: attachments_pb2.AttachmentPart
) -> None:
    """Write a part.

    Raises:
        Problem: it is not expected, or not what its hash says.
        BlobsUnavailableError: it cannot be written now.
    """
    if expected is None:
        raise _NOT_BEGUN
    if not expected.part_hash:
        raise Problem(
            "index",
            f"there is no part {part.index}: {expected.size_bytes:,} bytes have {part_count(expected.size_bytes):,} parts, from 0",
        )
    size = part_size(expected.size_bytes, part.index)
    if len(part.data) != size:
        raise Problem("data", f"part {part.index} has {size:,} bytes, not {len(part.data):,}")
    if expected.is_stored:  # by somebody else, or by a call whose answer was lost
        return
    if not await blobs.run(
        put_checked, blobs.blobs, expected.blob, part.index, part.data, expected.part_hash
    ):
        raise Problem(
            "data",
            f"is not what the hash of part {part.index} says: read the file again, and begin again if it changed",
        )
    events.attachment_bytes.labels("uploaded").inc(size)
