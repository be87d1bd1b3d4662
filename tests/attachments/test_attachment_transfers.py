"""Uploads and fetches of the SDK, against a service in memory that lies, forgets and loses parts."""

import fcntl
import hashlib
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import duly
from duly.attachments.attachment import Attachment
from duly.attachments.fetch import Stored
from duly.attachments.in_parallel import in_parallel
from duly.attachments.memory import MemoryService
from duly.attachments.origin import Origin
from duly.attachments.saving import target_of
from duly.attachments.service import BEGIN, FETCH, FINISH, UPLOAD, upload_request
from duly.attachments.upload import Upload, upload
from duly.encryption import AesGcm
from duly_wire.attachment_rules import PART_BYTES, divided, hash_of
from duly_wire.v1 import attachments_pb2, task_pb2

CONTENT = os.urandom(2 * PART_BYTES + 12_345)
CODEC = AesGcm({"k": bytes(32)}, "k")


class ScriptedService(MemoryService):
    """Remembers what was asked; `change` may replace an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, Any]] = []
        self.change: Callable[[str, Any, Any], None] = lambda name, request, answer: None

    def call(self, method: Any, request: Any) -> Any:
        if isinstance(request, bytes):
            request = attachments_pb2.UploadPartsRequest.FromString(request)
        self.asked.append((method.name, request))
        answer = super().call(method, request)
        self.change(method.name, request, answer)
        return answer

    def parts_fetched(self) -> list[int]:
        return sorted(
            index for name, request in self.asked if name == FETCH.name for index in request.indexes
        )


@pytest.fixture
def service() -> ScriptedService:
    return ScriptedService()


def stored(service: ScriptedService, content: bytes = CONTENT, codec: Any = None) -> Attachment:
    (sent,) = upload(service, "a", [Attachment(content, name="data")], codec)
    sent.attachment.bind(Origin("task", service, codec))
    service.asked.clear()
    return sent.attachment


def partial(folder: Path) -> Path:
    (found,) = folder.glob(".duly-*.part")
    return found


def test_what_is_stored_already_is_not_sent_again(service: ScriptedService) -> None:
    attachment = stored(service)

    again = upload(service, "a", [Attachment(CONTENT), Attachment(CONTENT)], None)

    assert {each.attachment.hash for each in again} == {attachment.hash}
    assert [name for name, _ in service.asked] == [BEGIN.name]


def test_small_files_go_together_and_equal_ones_once(service: ScriptedService) -> None:
    upload(service, "a", [Attachment(b"%d" % (number % 50)) for number in range(100)], None)

    sent = [request for name, request in service.asked if name == UPLOAD.name]
    assert [len(request.parts) for request in sent] == [50]


def test_an_upload_that_the_server_forgot_is_begun_again(service: ScriptedService) -> None:
    losses = iter([1, 2])

    def forget(name: str, request: Any, answer: Any) -> None:
        if name == FINISH.name and next(losses, None):
            service.forget(request.hashes[0])
            answer.results[0].error.code = task_pb2.ERROR_CODE_ATTACHMENT_MISSING

    service.change = forget

    (sent,) = upload(service, "a", [Attachment(CONTENT)], None)

    assert service.content(bytes.fromhex(sent.attachment.hash)) == CONTENT
    assert [name for name, _ in service.asked].count(BEGIN.name) == 3


@pytest.mark.parametrize("phase", ["hash", "upload"])
def test_a_file_that_changes_while_it_is_uploaded_is_refused(
    service: ScriptedService, tmp_path: Path, phase: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)

    def change(progress: duly.TransferProgress) -> None:
        if progress.phase == phase:
            with path.open("r+b") as file:
                file.seek(2 * PART_BYTES)
                file.write(b"other")
            os.utime(path, ns=(1, 1))

    with pytest.raises(duly.AttachmentChangedError, match="changed while it was read"):
        upload(service, "a", [Attachment(path, progress=change)], None)


def test_a_file_that_shrinks_is_refused(service: ScriptedService, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)

    with pytest.raises(duly.AttachmentChangedError):
        upload(service, "a", [Attachment(path, progress=lambda _: os.truncate(path, 5))], None)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_only_regular_files_are_taken_and_nothing_waits_for_the_others(
    service: ScriptedService, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "strange")

    with pytest.raises((ValueError, IsADirectoryError), match=r"regular file|Is a directory"):
        upload(service, "a", [Attachment(tmp_path / "strange")], None)


def test_wrong_bytes_are_found_out_and_nothing_is_saved(service: ScriptedService, tmp_path: Path) -> None:
    attachment = stored(service)
    (tmp_path / "file").write_bytes(b"as before")

    def lie(name: str, request: Any, answer: Any) -> None:
        if name == FETCH.name and list(request.indexes) == [1]:
            answer.parts[0].data = bytes(PART_BYTES)

    service.change = lie

    with pytest.raises(duly.AttachmentCorruptError, match="part 1 of 3"):
        attachment.save(tmp_path / "file")
    with pytest.raises(duly.AttachmentCorruptError, match="part 1 of 3"):
        attachment.read()
    assert (tmp_path / "file").read_bytes() == b"as before"


def _other_hashes(answer: Any) -> None:
    answer.part_hashes = answer.part_hashes[::-1]


def _fewer_hashes(answer: Any) -> None:
    answer.part_hashes = answer.part_hashes[:32]


def _other_size(answer: Any) -> None:
    answer.size_bytes -= 1


@pytest.mark.parametrize("change", [_other_hashes, _fewer_hashes, _other_size])
def test_a_server_that_tells_other_parts_is_found_out(
    service: ScriptedService, change: Callable[[Any], None]
) -> None:
    attachment = stored(service)
    service.change = lambda name, request, answer: (
        change(answer) if name == FETCH.name and not request.indexes else None
    )

    with pytest.raises(duly.AttachmentCorruptError):
        attachment.read()


def test_a_task_that_lies_about_the_size_is_found_out(service: ScriptedService) -> None:
    attachment = stored(service)
    lying = Attachment.stored(
        hash_hex=attachment.hash,
        size_bytes=5,
        name="data",
        media_type="",
        encrypted=False,
        origin=attachment.origin,
    )

    with pytest.raises(duly.AttachmentCorruptError):
        lying.read()


@pytest.mark.parametrize("codec", [None, CODEC])
def test_a_fetch_that_was_interrupted_brings_only_what_is_missing_or_wrong(
    service: ScriptedService, tmp_path: Path, codec: Any
) -> None:
    attachment = stored(service, codec=codec)
    asked = threading.Event()

    def fail(name: str, request: Any, answer: Any) -> None:
        if name == FETCH.name and 2 in request.indexes:
            asked.wait(10)  # the others are there by then
            raise duly.UnavailableError("gone")
        if name == FETCH.name and 1 in request.indexes:
            asked.set()

    service.calls_at_a_time = 1
    service.change = fail
    with pytest.raises(duly.UnavailableError):
        attachment.save(tmp_path / "file")
    with partial(tmp_path).open("r+b") as file:
        file.seek(PART_BYTES + 5)
        file.write(b"wrong bytes")
    service.change = lambda name, request, answer: None
    service.asked.clear()
    told: list[duly.TransferProgress] = []

    attachment.save(tmp_path / "file", progress=told.append)

    assert (tmp_path / "file").read_bytes() == CONTENT
    assert service.parts_fetched() == [1, 2]
    assert told[-1].done_bytes == told[-1].total_bytes
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that has room for one part."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={PART_BYTES}", "none", str(folder)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("this user may not mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_told_before_anything_is_fetched_and_keeps_nothing(
    service: ScriptedService, full_disk: Path
) -> None:
    attachment = stored(service)

    with pytest.raises(OSError, match="No space left"):
        attachment.save(full_disk / "file")

    assert list(full_disk.iterdir()) == []
    assert service.parts_fetched() == []


def test_without_the_key_only_the_first_part_is_fetched(service: ScriptedService, tmp_path: Path) -> None:
    attachment = stored(service, os.urandom(8 * PART_BYTES), CODEC)
    attachment.bind(Origin("task", service, AesGcm({"other": bytes(32)}, "other")))
    service.calls_at_a_time = 1

    with pytest.raises(duly.DecryptionError, match="no such key"):
        attachment.save(tmp_path / "file")

    assert service.parts_fetched() == [0]


def test_parts_of_an_encrypted_file_cannot_be_exchanged(service: ScriptedService) -> None:
    attachment = stored(service, codec=CODEC)
    found = Stored.find(service, "task", attachment)
    parts = [found.part(index) for index in range(3)]

    with pytest.raises(duly.DecryptionError):
        found.plain(CODEC, 1, parts[0])
    with pytest.raises(duly.DecryptionError):
        found.plain(CODEC, 1, parts[2])
    assert CONTENT[:1000] not in b"".join(parts)


def test_what_is_told_of_an_encrypted_file_says_nothing_of_it(service: ScriptedService) -> None:
    (sent,) = upload(service, "a", [Attachment(b"x", name="salary of ann", media_type="text/csv")], CODEC)

    use = sent.use(1, 1)

    assert (use.name, use.media_type) == ("encrypted-1", "application/vnd.duly.encrypted")
    assert sent.attachment.name == "salary of ann"


@pytest.mark.parametrize("name", ["..", "a/b", "/etc/passwd", ".bashrc", "a\0", "C:evil", "a\nb", " "])
def test_a_name_that_could_be_another_file_is_not_used_in_a_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="say as which file to save it"):
        target_of(tmp_path, name)


def test_a_link_that_lies_in_wait_is_replaced_and_not_followed(
    service: ScriptedService, tmp_path: Path
) -> None:
    attachment = stored(service, b"content")
    (tmp_path / "other").write_bytes(b"of somebody else")
    (tmp_path / "file").symlink_to(tmp_path / "other")

    attachment.save(tmp_path / "file")

    assert (tmp_path / "other").read_bytes() == b"of somebody else"
    assert (tmp_path / "file").read_bytes() == b"content"


def test_what_is_read_as_a_file_is_fetched_as_it_is_needed(service: ScriptedService) -> None:
    attachment = stored(service)

    with attachment.open() as file:
        file.seek(-5, os.SEEK_END)
        end = file.read()

    assert end == CONTENT[-5:]
    assert service.parts_fetched() == [2]


def test_the_first_failure_ends_all_and_the_others_stop() -> None:
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        if number == 3:
            raise RuntimeError("three")
        return number

    with pytest.raises(RuntimeError, match="three"):
        list(in_parallel(work, range(1000), 2))

    assert len(begun) < 1000


def test_a_request_that_is_written_by_hand_is_the_message() -> None:
    parts = [(bytes(range(32)), 0, b"a" * 200), (bytes(32), 70_000, b""), (bytes(32), 2, CONTENT[:70_000])]
    message = attachments_pb2.UploadPartsRequest(
        parts=[attachments_pb2.AttachmentPart(hash=each[0], index=each[1], data=each[2]) for each in parts]
    )
    setattr(message, "lambda", "mail.send")

    assert attachments_pb2.UploadPartsRequest.FromString(upload_request("mail.send", parts)) == message


def test_the_hash_is_the_one_that_servers_compute() -> None:
    parts = [CONTENT[at : at + PART_BYTES] for at in range(0, len(CONTENT), PART_BYTES)]
    hashes = b"".join(hashlib.sha256(part).digest() for part in parts)

    (sent,) = upload(MemoryService(), "a", [Attachment(CONTENT)], None)

    assert isinstance(sent, Upload)
    assert sent.attachment.hash == hash_of(divided(hashes)).hex()


def test_a_local_file_that_is_saved_where_it_is_stays_whole(tmp_path: Path) -> None:
    file = tmp_path / "report.csv"
    file.write_bytes(b"a,b\n1,2\n")

    assert Attachment(file).save(tmp_path) == file

    assert file.read_bytes() == b"a,b\n1,2\n"
    assert [each.name for each in tmp_path.iterdir()] == ["report.csv"]


def test_a_fetch_that_another_one_overtakes_does_not_write_into_its_file(
    service: ScriptedService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attachment = stored(service)
    lock = fcntl.flock

    def end_the_other_first(descriptor: int, how: int) -> None:
        partial(tmp_path).replace(tmp_path / "file")
        (tmp_path / "file").write_bytes(b"complete")
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", end_the_other_first)
    with pytest.raises(duly.DulyError, match="is being fetched by another"):
        attachment.save(tmp_path / "file")

    assert (tmp_path / "file").read_bytes() == b"complete"
