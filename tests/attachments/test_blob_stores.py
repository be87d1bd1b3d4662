"""What each store of blobs must do: a folder, and a bucket of moto's S3."""

import errno
import os
import sys
import threading
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from pydantic import ValidationError

from duly_core.attachments.blobs import BlobThreads
from duly_core.attachments.folder import FolderBlobs
from duly_core.attachments.open_blobs import open_blobs
from duly_core.attachments.settings import AttachmentSettings
from duly_core.errors import BlobsUnavailableError, SettingsError


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.sqs)])
def blobs(request, tmp_path):
    if request.param == "folder":
        return open_blobs(AttachmentSettings(store="folder", folder=str(tmp_path / "made")))
    endpoint = request.getfixturevalue("moto_endpoint")
    bucket = f"duly-{uuid4().hex}"
    opened = open_blobs(
        AttachmentSettings(store="s3", bucket=bucket, endpoint_url=endpoint, prefix="deep/er")
    )
    opened._client.create_bucket(Bucket=bucket)
    return opened


def test_parts_are_read_as_they_were_written_and_go_with_their_blob(blobs):
    one, other = uuid4(), uuid4()
    blobs.put(one, 1, b"second")
    blobs.put(one, 0, b"first")
    blobs.put(one, 0, b"first")
    blobs.put(other, 10, bytes(range(256)))
    blobs.sync(one)

    sizes = blobs.sizes(one)
    found = {each.blob for each in blobs.blobs()}
    blobs.remove(one)
    blobs.remove(one)

    assert sizes == {0: 5, 1: 6}
    assert found == {one, other}
    assert (blobs.get(one, 0), blobs.get(other, 10), blobs.get(other, 1)) == (None, bytes(range(256)), None)
    assert (blobs.sizes(one), {each.blob for each in blobs.blobs()}) == ({}, {other})


def test_a_store_has_the_name_and_the_turn_that_it_was_given_and_they_are_no_blobs(blobs):
    before = blobs.marker(), blobs.turn()
    blobs.put_marker("a name")
    blobs.put_turn("a turn")

    assert before == ("", "")
    assert (blobs.marker(), blobs.turn()) == ("a name", "a turn")
    assert list(blobs.blobs()) == []


def test_a_store_without_its_folder_or_bucket_is_refused_at_the_start(tmp_path):
    (tmp_path / "file").write_text("")
    wrong = [
        {"store": "folder"},
        {"store": "s3"},
        {"store": "s3", "bucket": "b", "prefix": ""},  # the bucket may have objects of others
        {"store": "s3", "bucket": "b", "prefix": "/"},
        {"store": "folder", "folder": str(tmp_path / "file" / "below")},
    ]

    for settings in wrong:
        with pytest.raises(SettingsError, match="attachments"):
            open_blobs(AttachmentSettings(**settings))
    assert open_blobs(AttachmentSettings()) is None


def test_s3_without_boto3_is_refused_at_the_start_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "duly_core.attachments.s3", None)

    with pytest.raises(SettingsError, match=r"install duly\[sqs\]"):
        open_blobs(AttachmentSettings(store="s3", bucket="b"))


def test_a_grace_of_nothing_is_refused():
    with pytest.raises(ValidationError, match="grace"):
        AttachmentSettings(grace=timedelta(0))


def test_what_somebody_else_keeps_there_is_no_blob(tmp_path):
    blobs = FolderBlobs.open(str(tmp_path))
    blobs.put(own := uuid4(), 0, b"part")
    for name in (str(uuid4()), f"{{{uuid4()}}}", uuid4().hex.upper(), "a" * 31):
        (tmp_path / name[:2] / name).mkdir(parents=True)
    (tmp_path / "zz" / uuid4().hex).mkdir(parents=True)

    assert [each.blob for each in blobs.blobs()] == [own]


@pytest.mark.sqs
def test_objects_of_somebody_else_in_the_bucket_are_no_blobs(moto_endpoint):
    bucket = f"duly-{uuid4().hex}"
    settings = AttachmentSettings(store="s3", bucket=bucket, endpoint_url=moto_endpoint)
    blobs = open_blobs(settings)
    blobs._client.create_bucket(Bucket=bucket)
    blobs.put(own := uuid4(), 0, b"part")
    others = [f"{settings.prefix}{uuid4()}/0", f"{settings.prefix}{own.hex}/notes.txt", f"{uuid4().hex}/0"]
    for key in others:
        blobs._client.put_object(Bucket=bucket, Key=key, Body=b"")

    found = [each.blob for each in blobs.blobs()]
    blobs.remove(own)

    assert found == [own]
    left = blobs._client.list_objects_v2(Bucket=bucket)["Contents"]
    assert sorted(each["Key"] for each in left) == sorted(others)


async def test_a_store_that_hangs_counts_as_unavailable_after_the_deadline(tmp_path):
    hang = threading.Event()
    threads = BlobThreads(FolderBlobs.open(str(tmp_path)), 1, deadline_s=0.05)

    for _ in range(2):  # the second one has no thread at all
        with pytest.raises(BlobsUnavailableError, match="does not answer within"):
            await threads.run(hang.wait)
    hang.set()
    threads.close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_an_error_that_passes_and_nothing_of_the_part_is_left(tmp_path, monkeypatch, code):
    blobs = FolderBlobs.open(str(tmp_path))
    blob = uuid4()

    def full(_descriptor):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", full)
        with pytest.raises(BlobsUnavailableError, match="is full"):
            blobs.put(blob, 0, b"part")
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    blobs.put(blob, 0, b"part")

    assert left == []
    assert blobs.get(blob, 0) == b"part"


def test_an_s3_that_does_not_answer_is_an_error_that_passes():
    away = AttachmentSettings(store="s3", bucket="b", endpoint_url="http://127.0.0.1:1")
    blobs = open_blobs(away)

    with pytest.raises(BlobsUnavailableError, match=r"attachments\.bucket"):
        blobs.put(uuid4(), 0, b"part")


def test_what_a_server_that_died_left_half_written_is_no_part_and_goes_with_the_blob(tmp_path):
    blobs = FolderBlobs.open(str(tmp_path))
    blob = uuid4()
    blobs.put(blob, 0, b"part")
    (half,) = tmp_path.rglob("0")
    Path(half.parent / "1.0123.unfinished").write_bytes(b"ha")

    sizes = blobs.sizes(blob)
    blobs.remove(blob)

    assert sizes == {0: 4}
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
