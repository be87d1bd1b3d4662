"""An address of one use: a person clicks a button, or a program posts JSON; once, and without a login."""

import asyncio
import itertools
import json
import random
from datetime import timedelta
from urllib.parse import quote

import pytest

import duly
from duly_console.pages import event_address
from duly_core.event_addresses import store as addresses
from duly_core.event_addresses.store import AddressSweep, NewAddress
from duly_core.events import store as store_events
from duly_core.events.store import EventKeyId
from tests.console.test_console_event_answers import kept, waiting
from tests.fixtures.console import browse, token_of
from tests.fixtures.services import serve_frontend

KEY = "order-7/approved"
HOUR = timedelta(hours=1)


async def made(store, title="Ship <order> 7?", key=KEY):
    ((token, _),) = await addresses.create(store, [NewAddress(EventKeyId("", key), title, HOUR)], "ann")
    return token


async def test_a_button_sends_the_event_once(browser, store, task_states):
    task = await waiting(task_states, KEY)
    path = f"/events/{await made(store)}"

    page = await browser.get(path)
    again = await browser.get(path)
    done = await browser.http.post(path, data={"answer": "approve"})
    repeated = await browser.http.post(path, data={"answer": "deny"})
    after = await browser.get(path)

    assert page.status_code == again.status_code == 200
    assert "Ship &lt;order&gt; 7?" in page.text
    assert (done.status_code, repeated.status_code, after.status_code) == (200, 410, 410)
    assert "used before" in repeated.text
    assert await kept(store, KEY) == [(True, "address of ann")]
    assert await task_states.status(task.task_id) == "new"


async def test_a_program_posts_json_and_is_answered_in_json(browser, store):
    path = f"/events/{await made(store)}"

    refused = await browser.http.post(path, content="{", headers={"content-type": "application/json"})
    done = await browser.http.post(path, json={"by": "ann"})

    assert (refused.status_code, done.status_code) == (400, 200)
    assert "JSON" in refused.json()["message"]
    assert done.json() == {"message": "Thank you: your answer was sent."}
    assert await kept(store, KEY) == [({"by": "ann"}, "address of ann")]


async def test_many_uses_at_once_send_one_event(browser, store):
    path = f"/events/{await made(store)}"

    answers = await asyncio.gather(*(browser.http.post(path, json=number) for number in range(10)))

    assert sorted(each.status_code for each in answers) == [200] + [410] * 9
    assert len(await kept(store, KEY)) == 1


async def test_a_stranger_whose_answer_trickles_in_keeps_nobody_from_answering(browser, store, monkeypatch):
    monkeypatch.setattr(event_address, "_AT_ONCE", 1)
    path = f"/events/{await made(store)}"
    begun, end = asyncio.Event(), asyncio.Event()

    async def trickling():
        begun.set()
        await end.wait()
        yield b"1"

    slow = asyncio.create_task(browser.http.post("/events/x", content=trickling()))
    await begun.wait()
    done = await browser.http.post(path, json=1)
    end.set()

    assert done.status_code == 200
    assert (await slow).status_code == 404


async def test_a_page_that_is_only_opened_changes_nothing(browser, store):
    path = f"/events/{await made(store)}"

    for method in ("GET", "HEAD"):
        await browser.http.request(method, path)

    assert await kept(store, KEY) == []
    assert (await browser.http.post(path, json=1)).status_code == 200


async def test_a_secret_address_goes_nowhere_with_a_link(browser, store):
    page = await browser.get(f"/events/{await made(store)}")

    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["cache-control"] == "no-store"
    assert "form-action 'self'" in page.headers["content-security-policy"]
    assert "<script" not in page.text
    assert "set-cookie" not in page.headers


async def test_an_address_that_is_over_or_unknown_says_so(browser, store):
    token = await made(store)
    async with store.connection() as connection:
        await connection.execute("update event_address set expires_at = duly_now() - interval '1 second'")
    over = await browser.http.post(f"/events/{token}", json=1)
    async with store.connection() as connection:
        await connection.execute("update event_address set expires_at = duly_now() - interval '40 days'")
    await AddressSweep(store).run_once()
    unknown = await browser.http.post(f"/events/{token}", json=1)

    assert (over.status_code, unknown.status_code) == (410, 404)
    assert "is over" in over.text
    assert await kept(store, KEY) == []


async def test_a_key_that_is_full_leaves_the_address_to_be_used_again(browser, store, monkeypatch):
    path = f"/events/{await made(store)}"
    monkeypatch.setattr(store_events, "MOST_KEPT", 0)
    full = await browser.http.post(path, json=1)
    monkeypatch.undo()

    assert full.status_code == 409
    assert (await browser.http.post(path, json=1)).status_code == 200


KINDS = [
    "application/json",
    "application/x-www-form-urlencoded",
    "text/plain; charset=x",
    "multipart/form-data",
    "x",
    "",
]
BODIES = [
    b"",
    b"{",
    b"[" * 60_000,
    b"\xff\x00",
    b"answer=approve",
    b"answer=approve&answer=deny",
    b"&" * 100,
    b"x" * 70_000,
    b"true",
]


async def test_whatever_strangers_send_is_a_refusal_and_nothing_more(browser, store):
    token = await made(store)
    wild = random.Random(7)  # noqa: S311 (the same in each run)
    alphabet = "ABab01_-/%.?\u00e9\u2028 \n"
    tokens = ["".join(wild.choices(alphabet, k=wild.randrange(1, 140))) for _ in range(30)]
    tokens += [token[:-1], token + "A", token.swapcase(), "A" * 43]

    for guess in tokens:
        path = f"/events/{quote(guess, safe='')}"
        answer = await browser.http.post(
            path, content=wild.choice(BODIES), headers={"content-type": wild.choice(KINDS)}
        )
        looked = await browser.http.get(path)

        assert (400 <= answer.status_code < 500, looked.status_code) == (True, 404), guess

    for body, kind in [
        *itertools.product(BODIES[:4] + BODIES[5:8], KINDS),
        (b"answer=other", KINDS[1]),
        (b"true", KINDS[1]),
    ]:
        answer = await browser.http.post(f"/events/{token}", content=body, headers={"content-type": kind})
        assert 400 <= answer.status_code < 500, (body[:20], kind)
        assert "Nothing was changed." in answer.text
    assert await kept(store, KEY) == []
    assert (await browser.http.post(f"/events/{token}", json=1)).status_code == 200


async def test_only_those_who_may_send_make_addresses_and_nobody_signs_in_to_use_one(guarded, store):
    own = "mail.7.approved"
    async with (
        duly.AsyncClient(guarded.address, token=token_of("auditor")) as auditor,
        duly.AsyncClient(guarded.address, token=token_of("client")) as client,
        browse(guarded) as stranger,
    ):
        with pytest.raises(duly.PermissionDeniedError, match="may"):
            await auditor.event_address(own)
        with pytest.raises(duly.PermissionDeniedError, match=r"'bill\.approved'"):
            await client.event_address("bill.approved")
        made_by_client = await client.event_address(own, title="Ship?")
        done = await stranger.http.post(f"/events/{made_by_client.token}", json=True)

    assert made_by_client.url == ""
    assert made_by_client.token not in repr(made_by_client)
    assert done.status_code == 200
    assert await kept(store, own) == [(True, "address of client")]
    async with store.connection() as connection:
        cursor = await connection.execute("select * from event_address")
        assert made_by_client.token not in str(await cursor.fetchall())


async def test_one_key_has_so_many_addresses_and_the_setting_gives_them_their_beginning(store, monkeypatch):
    monkeypatch.setattr(addresses, "MOST_OF_KEY", 2)
    async with (
        serve_frontend(store, public_url="https://duly.example.com/") as frontend,
        duly.AsyncClient(frontend.address) as client,
    ):
        first = await client.event_address(KEY)
        await client.event_address(KEY, expires_in=HOUR)
        with pytest.raises(duly.QuotaExceededError):
            await client.event_address(KEY)
        await client.event_address("another")

    assert first.url == f"https://duly.example.com/events/{first.token}"


async def test_the_command_says_what_is_missing_for_an_address(run_duly):
    done = await run_duly("events", "address", KEY, "--title", "Ship?")
    as_json = await run_duly("events", "address", KEY, "--json")

    assert done.stdout.startswith("/events/")
    assert "frontend.public_url" in done.stderr
    assert json.loads(as_json.stdout)["url"] == ""
