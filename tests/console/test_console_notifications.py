"""The console's page of targets of notifications: how deliveries went, a test, and who may see and send it."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from duly_core.access.authorizer import Authorizer
from duly_core.access.cache import AccessCache
from duly_core.notifications import store as store_notifications
from duly_core.notifications.rules import Message, Told
from duly_core.notifications.settings import NotificationSettings
from duly_core.notifications.store import Delivery
from duly_frontend.notifications.deliveries import Deliveries
from tests.fixtures.console import Browser, browse
from tests.fixtures.services import serve_frontend

NASTY = "<script>alert(1)</script>"
SECRET = "s3cret"


@asynccontextmanager
async def console(store, http_receiver, authorizer: Authorizer | None = None) -> AsyncIterator[Browser]:
    """A browser on a console of a Frontend that has three targets."""
    hook = f"http://127.0.0.1:1/{SECRET}"
    targets = {
        "gone": {"kind": "webhook", "url": hook, "severity": "critical", "lambdas": ["mail.*"]},
        "new": {"kind": "webhook", "url": hook, "kinds": ["no_host", "late"], "repeat": "4h"},
        "ops": {"kind": "slack", "url": f"{http_receiver.url}", "resolved": False},
    }
    settings = NotificationSettings(
        targets=targets, allow=("127.0.0.0/8",), allow_plaintext=True, timeout=timedelta(seconds=5)
    )
    deliveries = Deliveries(settings, "")
    async with (
        serve_frontend(store, authorizer=authorizer, deliveries=deliveries) as frontend,
        browse(frontend) as browser,
    ):
        yield browser
    await deliveries.close()


async def fail(store, target: str, failure: str) -> None:
    """A message to this target does not arrive, and waits."""
    begun = await store_notifications.begin(store, target, "test", timedelta())
    assert begun is not None
    message = Message(message_id="7e57-1d", created_at=datetime.now(UTC), items=(), counts={}, worst=0)
    told = Told(message=message)
    assert await store_notifications.keep(store, target, begun.begun_at, told)
    delivery = Delivery(failure, timedelta(minutes=5))
    assert await store_notifications.finish(store, target, begun.begun_at, None, delivery)


def row(page: str, name: str) -> str:
    (found,) = [each for each in page.split("<tr>") if f"<strong>{name}</strong>" in each]
    return found


async def test_the_page_says_how_deliveries_went_and_when_the_next_try_is(store, http_receiver):
    await store_notifications.note_test(store, "ops", "")
    await fail(store, "gone", f"answered 500 {NASTY}")
    async with console(store, http_receiver) as browser:
        page = (await browser.get("/notifications")).text

    gone, new, ops = (row(page, name) for name in ("gone", "new", "ops"))
    assert "fails</span>" in gone
    assert "1 in a row" in gone
    assert re.search(r"\d\d:\d\d:\d\d</time> UTC", gone)
    assert "unused</span>" in new
    assert "ok</span>" in ops
    told = page.partition("<dl>")[2]
    assert ">problems from critical on; of mail.*; once they stand for 30 s; their ends, too<p" in told
    assert "problems from warning on; only no host, late; once they stand for 30 s; again after 4 h" in told
    assert ": answered 500 &lt;script&gt;" in told
    assert told.count("their ends, too") == 2
    assert SECRET not in page
    assert NASTY not in page
    assert '<a href="/notifications"' in page


async def test_a_test_is_sent_once_it_was_confirmed_and_tells_what_came_of_it(store, http_receiver):
    async with console(store, http_receiver) as browser:
        await browser.get("/notifications")
        asked = await browser.post("/notifications/test", name="ops")
        before = [*http_receiver.bodies]
        arrived = await browser.confirmed("/notifications/test", name="ops")
        failed = await browser.confirmed("/notifications/test", name="gone")
        unknown = await browser.post("/notifications/test", name="nobody", confirm="yes")
        audit = (await browser.get("/audit?method=TestNotificationTargets")).text

    assert "Send a test to ops?" in asked.text
    assert before == []
    assert "The test of ops arrived (" in arrived.text
    assert b"a test" in http_receiver.bodies[0]
    assert "The test of gone did not arrive (" in failed.text
    assert "no connection" in failed.text.partition("<dl>")[2]
    assert "the last one failed</span>" in row(failed.text, "gone")
    assert unknown.status_code == 409
    assert "no target &#39;nobody&#39;" in unknown.text
    assert audit.count('data-label="Method"') == 3
    assert SECRET not in arrived.text + failed.text + unknown.text + audit


@pytest.mark.parametrize(
    ("principal", "status", "can_test"),
    [("operator", 200, True), ("auditor", 200, False), ("owner", 403, False)],
)
async def test_who_may_read_everything_sees_targets_and_operators_test_them(
    store, http_receiver, guarded, principal, status, can_test
):
    async with console(store, http_receiver, Authorizer(AccessCache(store))) as browser:
        await browser.sign_in(principal)
        menu = (await browser.get("/tasks")).text
        page = await browser.get("/notifications")
        tested = await browser.post("/notifications/test", name="ops", confirm="yes")

    assert page.status_code == status
    assert ('<a href="/notifications"' in menu) is (status == 200)
    assert ('action="/notifications/test"' in page.text) is can_test
    assert tested.status_code == (303 if can_test else 403)
    assert bool(http_receiver.bodies) is can_test


async def test_without_targets_the_page_says_that_nobody_is_told_and_how_to_change_that(browser):
    page = (await browser.get("/notifications")).text

    assert "Nobody is told" in page
    assert "[notifications.targets.NAME]" in page
