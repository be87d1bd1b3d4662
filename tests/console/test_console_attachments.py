"""The attachments of a task in the console: shown with the payload, and saved by links."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from duly_wire.v1 import frontend_pb2, task_pb2
from tests.fixtures.attachments import Content, upload
from tests.fixtures.console import Browser, browse
from tests.fixtures.services import Frontend
from tests.fixtures.task_states import LAMBDA, TaskStates

CONTENT = Content(b"<script>alert(1)</script>" + bytes(5 * 1024 * 1024))
_LINK = re.compile(r'href="(/attachments/[^"]+)"')


@pytest.fixture
async def shown(storing: Frontend, task_states: TaskStates) -> AsyncIterator[tuple[Browser, str]]:
    """A browser at a task that has an attachment, and the link to it."""
    await task_states.register()
    await upload(storing, CONTENT)
    uses = task_pb2.AttachmentUses(uses=[CONTENT.use("a b.html", media_type="text/html")])
    new = {"lambda": LAMBDA, "attachments": uses.SerializeToString()}
    answer = await storing.stub.Schedule(frontend_pb2.ScheduleRequest(tasks=[new]))
    task_id = answer.results[0].task_id
    async with browse(storing) as browser:
        assert "a b.html" not in (await browser.get(f"/tasks/{task_id}")).text
        page = await browser.post(f"/tasks/{task_id}/reveal")
        assert "a b.html" in page.text
        (link,) = _LINK.findall(page.text)
        yield browser, link


async def test_a_link_saves_the_attachment_and_shows_it_as_no_page(shown: tuple[Browser, str]) -> None:
    browser, link = shown

    answer = await browser.http.get(link)

    assert answer.content == CONTENT.data
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''a%20b.html"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("sandbox")


async def test_a_link_is_worth_nothing_in_another_session(
    shown: tuple[Browser, str], storing: Frontend
) -> None:
    _, link = shown

    async with browse(storing) as other:
        await other.get("/")
        answer = await other.http.get(link)

    assert answer.status_code == 404
    assert "expired, or is of another session" in answer.text


async def test_a_part_that_was_changed_on_the_disk_is_not_sent(
    shown: tuple[Browser, str], attachment_folder: Path
) -> None:
    browser, link = shown
    part = max(
        (path for path in attachment_folder.rglob("*") if path.is_file()),
        key=lambda path: path.stat().st_size,
    )
    data = part.read_bytes()
    part.write_bytes(data[:-1] + b"x")

    with capture_logs() as logs, pytest.raises(AssertionError):  # what stands for the server: no end came
        await browser.http.get(link)

    (told,) = (each for each in logs if "download" in each["event"])
    assert told["part"] == 0
    assert "script" not in str(logs)
