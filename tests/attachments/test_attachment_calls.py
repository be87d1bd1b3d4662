"""Uploads and fetches through the Frontend, as a client and as a hostile one."""

import asyncio
import hashlib
import os
from uuid import uuid4

import grpc
import pytest

from duly_core.attachments.folder import FolderBlobs
from duly_core.attachments.settings import AttachmentSettings
from duly_core.errors import BlobsUnavailableError
from duly_wire.attachment_rules import PART_BYTES
from duly_wire.ids import new_task_id
from duly_wire.v1 import attachments_pb2, task_pb2
from tests.fixtures.attachments import Content, begin, finish, send, upload
from tests.fixtures.services import refusal, serve_frontend
from tests.fixtures.task_states import LAMBDA

SMALL = Content(b"a,b\n1,2\n")
LARGE = Content(os.urandom(PART_BYTES + 1_000))
EMPTY = Content(b"")


@pytest.fixture
async def frontend(storing, task_states):
    await task_states.register()
    return storing


def codes(results):
    return [task_pb2.ErrorCode.Name(each.error.code).removeprefix("ERROR_CODE_") for each in results]


async def test_parts_are_sent_in_any_order_and_an_upload_goes_on_where_it_ended(frontend):
    (first,) = await begin(frontend, LARGE)
    await send(frontend, LARGE.part(1))
    (again,) = await begin(frontend, LARGE)
    (too_early,) = await finish(frontend, LARGE)
    await send(frontend, LARGE.part(0))
    (finished,) = await finish(frontend, LARGE)
    (repeated,) = await finish(frontend, LARGE)
    (third,) = await begin(frontend, LARGE)

    assert list(first.missing_parts) == [0, 1]
    assert list(again.missing_parts) == [0]
    assert (list(too_early.missing_parts), too_early.error.code) == (
        [0],
        task_pb2.ERROR_CODE_ATTACHMENT_MISSING,
    )
    assert not finished.HasField("error")
    assert not repeated.HasField("error")
    assert third.stored


async def test_many_contents_are_uploaded_in_one_call_and_one_without_content_has_no_part(frontend):
    results = await begin(frontend, SMALL, EMPTY)
    sent = await send(frontend, SMALL.part(0))
    finished = await finish(frontend, SMALL, EMPTY)

    assert [list(each.missing_parts) for each in results] == [[0], []]
    assert codes([*sent, *finished]) == ["UNSPECIFIED"] * 3


async def test_the_parts_of_all_uploads_that_a_call_finishes_are_bounded(frontend):
    part_hashes = [os.urandom(32 * 1_250) for _ in range(9)]
    uploads = [
        attachments_pb2.AttachmentUpload(
            hash=hashlib.sha256(each).digest(), size_bytes=1_250 * PART_BYTES, part_hashes=each
        )
        for each in part_hashes
    ]
    lambda_name = {"lambda": LAMBDA}
    for some in (uploads[:8], uploads[8:]):
        await frontend.attachments.BeginUploads(
            attachments_pb2.BeginUploadsRequest(**lambda_name, uploads=some)
        )
    request = attachments_pb2.FinishUploadsRequest(**lambda_name, hashes=[each.hash for each in uploads])

    refused = await refusal(frontend.attachments.FinishUploads(request))
    del request.hashes[8:]
    (first, *_) = (await frontend.attachments.FinishUploads(request)).results

    assert (refused.code, refused.field) == (grpc.StatusCode.INVALID_ARGUMENT, "hashes")
    assert len(first.missing_parts) == 1_250


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"hash": b"short"}, "hash"),
        ({"hash": hashlib.sha256(b"other").digest()}, "hash"),
        ({"size_bytes": -1}, "size_bytes"),
        ({"size_bytes": 2**62}, "size_bytes"),
        ({"size_bytes": 1}, "part_hashes"),
        ({"part_hashes": LARGE.part_hashes[:40]}, "part_hashes"),
        ({"part_hashes": LARGE.part_hashes[::-1]}, "hash"),
        ({"part_hashes": b""}, "part_hashes"),
    ],
)
async def test_an_upload_that_lies_about_hash_or_size_is_refused_by_itself(frontend, changes, field):
    request = attachments_pb2.BeginUploadsRequest(
        **{"lambda": LAMBDA}, uploads=[SMALL.upload(), LARGE.upload(**changes)]
    )

    if "size_bytes" in changes and changes["size_bytes"] > 10_000 * PART_BYTES:
        assert (await refusal(frontend.attachments.BeginUploads(request))).field == "uploads"
        return
    good, bad = (await frontend.attachments.BeginUploads(request)).results

    assert list(good.missing_parts) == [0]
    assert (bad.error.code, bad.error.field) == (task_pb2.ERROR_CODE_INVALID_ARGUMENT, field)


async def test_a_part_that_is_not_what_its_hash_says_is_refused_and_nothing_of_it_is_kept(
    frontend, attachment_folder
):
    await begin(frontend, LARGE)

    results = await send(frontend, LARGE.part(1, data=LARGE.parts[1][:-1] + b"x"))
    results = [*results, *await send(frontend, LARGE.part(1, data=b"short"))]
    results = [*results, *await send(frontend, LARGE.part(1, at=2), LARGE.part(1, at=-1))]
    results = [*results, *await send(frontend, LARGE.part(1, data=b""))]
    results = [*results, *await send(frontend, LARGE.part(1, hash=b"short"), Content(b"unknown").part(0))]

    assert [each.error.field for each in results] == [
        "data",
        "data",
        "index",
        "index",
        "data",
        "hash",
        "hash",
    ]
    assert codes(results) == ["INVALID_ARGUMENT"] * 6 + ["ATTACHMENT_MISSING"]
    assert [path.name for path in attachment_folder.rglob("*") if path.is_file()] == ["store-id"]


async def test_an_attachment_whose_content_is_the_part_hashes_of_another_is_told_apart(frontend):
    await upload(frontend, LARGE)
    twin = Content(LARGE.part_hashes)

    (result,) = await begin(frontend, twin)

    assert twin.hash == LARGE.hash
    assert result.error.field == "size_bytes"
    assert f"{len(LARGE.data):,}" in result.error.message


async def test_an_upload_that_was_begun_with_a_wrong_size_does_not_hold_up_the_right_one(frontend):
    twin = Content(LARGE.part_hashes)
    await begin(frontend, twin)

    await upload(frontend, LARGE)

    assert (await begin(frontend, LARGE))[0].stored


async def test_attachments_of_another_namespace_are_not_told(frontend, task_states):
    await task_states.register("other/lambda")
    await upload(frontend, SMALL)

    (result,) = await begin(frontend, SMALL, name="other/lambda")

    assert (result.stored, list(result.missing_parts)) == (False, [0])


async def test_uploads_are_for_registered_lambdas_and_for_installations_with_a_store(frontend, store):
    request = attachments_pb2.BeginUploadsRequest(**{"lambda": "nobody"}, uploads=[SMALL.upload()])
    unknown = await refusal(frontend.attachments.BeginUploads(request))
    async with serve_frontend(store) as without:
        off = await refusal(
            without.attachments.BeginUploads(
                attachments_pb2.BeginUploadsRequest(**{"lambda": LAMBDA}, uploads=[SMALL.upload()])
            )
        )

    assert (unknown.code, unknown.field) == (grpc.StatusCode.INVALID_ARGUMENT, "lambda")
    assert off.code is grpc.StatusCode.FAILED_PRECONDITION
    assert "attachments.store" in off.message


async def test_a_fetch_of_what_no_task_uses_is_refused(frontend):
    await upload(frontend, SMALL)
    request = attachments_pb2.FetchPartsRequest(task_id=str(new_task_id()), hash=SMALL.hash, indexes=[0])

    answer = await frontend.attachments.FetchParts(request)

    assert answer.error.code == task_pb2.ERROR_CODE_NOT_FOUND
    assert not answer.parts


async def test_a_full_disk_refuses_the_call_and_it_may_be_made_again(store, task_states, attachment_folder):
    class Full(FolderBlobs):
        is_full = True

        def put(self, blob, index, data):
            if self.is_full:
                raise BlobsUnavailableError("the disk of the attachments is full")
            super().put(blob, index, data)

    await task_states.register()
    blobs = Full.open(str(attachment_folder))
    async with serve_frontend(store, blobs=blobs) as frontend:
        await begin(frontend, SMALL)
        refused = await refusal(send(frontend, SMALL.part(0)))
        blobs.is_full = False
        (sent,) = await send(frontend, SMALL.part(0))
        (finished,) = await finish(frontend, SMALL)

    assert refused.code is grpc.StatusCode.UNAVAILABLE
    assert codes([sent, finished]) == ["UNSPECIFIED"] * 2


async def test_many_upload_one_content_at_a_time_and_it_is_stored_once(frontend, store, attachment_folder):
    await asyncio.gather(*(upload(frontend, LARGE) for _ in range(6)))

    async with store.connection() as connection:
        cursor = await connection.execute("select count(*), sum(size_bytes)::int8 from attachment")
        stored = await cursor.fetchall()
        cursor = await connection.execute("select bytes from attachment_usage")
        used = await cursor.fetchall()
    files = [path for path in attachment_folder.rglob("*") if path.is_file()]

    assert stored == [(1, len(LARGE.data))]
    assert used == [(len(LARGE.data),)]
    assert sorted(path.name for path in files) == ["0", "1", "store-id"]


async def test_a_quota_of_a_namespace_bounds_what_is_stored_and_begun_together(
    store, task_states, attachment_folder
):
    await task_states.register()
    await task_states.register("other/lambda")
    settings = AttachmentSettings(store="folder", folder=str(attachment_folder), quota=len(LARGE.data) + 5)
    async with serve_frontend(store, attachments=settings) as frontend:
        large, small = await begin(frontend, LARGE, SMALL)
        answers = await asyncio.gather(*(begin(frontend, Content(bytes([n]) * 3)) for n in range(4)))
        (elsewhere,) = await begin(frontend, SMALL, name="other/lambda")
        (repeated,) = await begin(frontend, LARGE)

    assert not large.HasField("error")
    assert small.error.code == task_pb2.ERROR_CODE_ATTACHMENT_QUOTA_EXCEEDED
    assert "attachments.quota" in small.error.message
    assert sum(each.HasField("error") for (each,) in answers) == 3
    assert codes([elsewhere, repeated]) == ["UNSPECIFIED"] * 2


async def test_nobody_uploads_to_where_another_database_would_remove_it(frontend, attachment_folder):
    FolderBlobs(attachment_folder).put_marker(str(uuid4()))

    refused = await refusal(
        frontend.attachments.BeginUploads(
            attachments_pb2.BeginUploadsRequest(**{"lambda": LAMBDA}, uploads=[SMALL.upload()])
        )
    )
    (attachment_folder / "store-id").unlink()
    await upload(frontend, SMALL)

    assert refused.code is grpc.StatusCode.FAILED_PRECONDITION
    assert "another database" in refused.message
    assert FolderBlobs(attachment_folder).marker()
