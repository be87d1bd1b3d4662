"""A console where people sign in, while Postgres does not answer: who may see what is in Postgres, too."""

import re
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest
from playwright.async_api import expect

from duly_core.access import cache as access_cache
from duly_core.access.authorizer import Authorizer
from duly_core.access.cache import AccessCache
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from tests.console.test_console_board import cards, words
from tests.fixtures.console import browse, token_of
from tests.fixtures.console_pages import needs_chromium, serve_console
from tests.fixtures.services import serve_frontend


@pytest.fixture
async def away(guarded, store, monkeypatch):
    """A browser that an owner of `mail.*` signed in before Postgres stood still; roles that were read before are too old."""
    monkeypatch.setattr(access_cache, "STALE", timedelta(0))
    async with browse(guarded) as browser:
        await browser.sign_in("owner")
        async with store.connection() as holder, holder.transaction():
            await holder.execute("set local idle_in_transaction_session_timeout = 0")
            await holder.execute("lock table access_version, access_token in access exclusive mode")
            yield browser


@pytest.mark.parametrize("path", ["/", "/tasks?lambda=billing.secret", "/lambdas/billing.secret", "/audit"])
async def test_each_page_says_that_the_store_is_away_since_when_and_nothing_else(away, path):
    page = await away.get(path)

    (card,) = cards(page.text).values()
    assert page.status_code == 503
    assert "critical Postgres does not answer: the roles of callers cannot be read" in words(card)
    assert "since " in words(card)
    assert "duly health" in words(card)
    assert 'id="retry"' in page.text
    for hidden in ("<nav", "billing.secret", "owner", "mail.", '<form action="/sign-out"'):
        assert hidden not in page.text.partition("<main")[2], hidden


async def test_a_part_of_an_open_page_fails_so_that_the_page_keeps_what_it_shows(away):
    part = await away.get("/tasks", headers={"hx-request": "true"})

    assert part.status_code in (503, 504)
    assert 'class="problem"' in part.text


async def test_a_change_is_not_made_and_the_page_says_so(away):
    sent = await away.post("/lambdas/mail.send/pause", confirm="yes")

    assert sent.status_code == 503
    assert "Nothing was changed." in sent.text
    assert 'id="retry"' not in sent.text


async def test_a_stranger_hears_nothing_of_it(guarded, away):
    async with browse(guarded) as stranger:
        page = await stranger.get("/")

    assert page.status_code == 303
    assert page.headers["location"] == "/sign-in"


async def test_when_the_store_is_back_the_page_is_that_of_the_person(guarded, store, monkeypatch):
    monkeypatch.setattr(access_cache, "STALE", timedelta(0))
    async with browse(guarded) as browser:
        await browser.sign_in("owner")
        async with store.connection() as holder, holder.transaction():
            await holder.execute("set local idle_in_transaction_session_timeout = 0")
            await holder.execute("lock table access_version, access_token in access exclusive mode")
            away = await browser.get("/tasks")
        back = await browser.get("/tasks")

    assert (away.status_code, back.status_code) == (503, 200)
    assert "owner" in back.text


@needs_chromium
@pytest.mark.long  # a browser, and a Postgres that stands still for some seconds
@pytest.mark.timeout(180)
async def test_an_open_page_keeps_what_it_shows_and_another_one_says_why_until_postgres_is_back(
    guarded, store, line, task_states, console_browser, monkeypatch
):
    await task_states.register()
    await task_states.new()
    async with AsyncExitStack() as closing:
        behind = await closing.enter_async_context(Store(StoreSettings(dsn=line.dsn)))
        authorizer = Authorizer(AccessCache(behind))
        frontend = await closing.enter_async_context(serve_frontend(behind, authorizer=authorizer))
        url = await closing.enter_async_context(serve_console(frontend))
        window = await console_browser.new_context(base_url=url)
        window.set_default_timeout(60_000)
        opened, other = await window.new_page(), await window.new_page()
        await opened.goto("/sign-in")
        await opened.get_by_label("Token").fill(token_of("operator"))
        await opened.get_by_role("button", name="Sign in").click()
        await opened.goto("/tasks")
        await expect(opened.locator("#rows")).to_contain_text("mail.send")

        monkeypatch.setattr(access_cache, "STALE", timedelta(0))
        line.freeze()
        answer = await other.goto("/lambdas")
        assert answer is not None
        assert answer.status == 503
        await expect(other.locator("h1")).to_have_text("Duly's store is away")
        await expect(other.locator(".card")).to_contain_text("Postgres does not answer")
        await expect(other.locator("body")).not_to_contain_text("mail.send")
        await expect(opened.locator("#no-answer [role=status]")).to_contain_text(
            re.compile("No answer since"), timeout=60_000
        )
        await expect(opened.locator("#rows")).to_contain_text("mail.send")
        line.thaw()

        await expect(other.locator("h1")).to_have_text("Lambdas", timeout=90_000)
        await expect(opened.locator("#no-answer [role=status]")).to_be_empty(timeout=60_000)
        await window.close()
