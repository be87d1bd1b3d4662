"""The incident board of the console: its cards, what a click on each leads to, and the mark on every page."""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from html import unescape
from uuid import UUID

import pytest

import duly
from duly_console.board import CARDS_SHOWN, status_of
from duly_console.causes import cause_of
from duly_console.routes import PAGES
from duly_console.viewer import Viewer
from duly_core.access.grants import UNRESTRICTED
from duly_core.problems import store as store_problems
from duly_core.problems.kinds import Kind, Severity
from duly_core.problems.problem import AboutHost, AboutSession, AboutTask, FoundProblem, found
from duly_core.tasks import causes
from duly_wire.enums import FailureKind, Outcome
from duly_wire.v1 import fleet_pb2_grpc, frontend_pb2
from tests.fixtures.console import browse
from tests.fixtures.problems import ran
from tests.fleet.test_fleet_hosts import a_report
from tests.problems.test_problem_texts import VALUES

LAMBDA = "mail.send"
HOST_ID = "rack-1:1:a"
NASTY = '<script>alert("x")</script>'
_CARD = re.compile(r'<li class="card c-(\w+)" id="card-(\w+)">(.*?)</li>', re.DOTALL)
_HIDDEN = re.compile(r'type="hidden" name="(\w+)" value="([^"]*)"')
_TAG = re.compile(r"<[^>]+>")
MINUTES = timedelta(minutes=1)


async def publish(store, *problems: FoundProblem) -> None:
    """Have the board say just this."""
    begun_at = await store_problems.begin(store, "test", timedelta(0))
    assert begun_at is not None
    assert await store_problems.publish(store, begun_at, problems)


def one(kind: Kind, subject: str = LAMBDA, severity: Severity = Severity.WARNING, **more) -> FoundProblem:
    values = VALUES.get(kind, {}) | more.pop("values", {})
    asked = {"lambdas": {LAMBDA: 3}} | more
    return found(kind, severity, datetime.now(UTC) - 5 * MINUTES, subject, **asked, **values)


def pause_of(name: str, **more) -> FoundProblem:
    return one(Kind.PAUSED, name, Severity.INFORMATION, **more)


def cards(page: str) -> dict[str, str]:
    """Return the cards of a page by their fingerprints."""
    return {name: text for _, name, text in _CARD.findall(page)}


def words(markup: str) -> str:
    return " ".join(unescape(_TAG.sub(" ", markup)).split())


def form_of(card: str) -> tuple[str, dict[str, str]] | None:
    """Return where the button of a card leads to, and what it sends."""
    if not (action := re.search(r'<form action="([^"]+)"', card)):
        return None
    hidden = dict(_HIDDEN.findall(card))
    return action[1], {name: unescape(value) for name, value in hidden.items() if name != "csrf"}


def link_of(card: str) -> str | None:
    shown = re.search(r'<a(?: class="button")? href="([^"]+)"', card.split('class="card-does"')[1])
    return unescape(shown[1]) if shown else None


@pytest.fixture
async def dead(task_states, client):
    """A dead letter, by its id."""
    await task_states.register()
    claimed = await task_states.claimed()
    await task_states.fail(claimed, message="KeyError: 7")
    return UUID(bytes=claimed.task_id)


@pytest.fixture
async def all_kinds(frontend, client, task_states, dead) -> Sequence[FoundProblem]:
    """A problem of each kind, about things that are there."""
    running = await task_states.claimed()
    await client.put_gate("deploy", duly.GateKind.PAUSE, LAMBDA, reason=NASTY)
    await client.put_breaker(LAMBDA, 0.5)
    await client.put_resource("database", 2)
    await client.put_pool("mailers", lambdas=[LAMBDA], maximum=2, driver="here")
    await fleet_pb2_grpc.FleetServiceStub(frontend.channel).ReportHost(a_report(HOST_ID, lambdas=(LAMBDA,)))
    host = AboutHost(HOST_ID, "rack-1", "", datetime.now(UTC), timedelta(seconds=90))
    holder = AboutTask(str(UUID(bytes=running.task_id)), LAMBDA, "claimed", datetime.now(UTC), HOST_ID)
    answer = await frontend.stub.GetTask(frontend_pb2.GetTaskRequest(task_ids=[str(dead)]))
    more = {
        Kind.PAUSED: {"subject": "deploy", "values": {"reason": NASTY}},
        Kind.RESOURCE_FULL: {"subject": "database"},
        Kind.POOL_DRIVER_FAILS: {"subject": "mailers"},
        Kind.SERVICE_AWAY: {"subject": "hsc"},
        Kind.CERTIFICATE_EXPIRES: {"subject": "frontend"},
        Kind.TOKEN_EXPIRES: {"subject": "t1", "lambdas": {}},
        Kind.NOTIFICATIONS_FAIL: {"subject": "ops", "lambdas": {}},
        Kind.SLOTS_HELD: {"holders": [holder]},
        Kind.DEAD_LETTERS: {"key": cause_of(answer.results[0].task).fingerprint},
        Kind.SESSIONS_BLOCKED: {
            "key": "default",
            "sessions": [AboutSession(NASTY, str(dead), datetime.now(UTC), 2)],
            "values": {"namespace": ""},
        },
    }
    about_hosts = (Kind.NO_HOST, Kind.SILENT_HOSTS, Kind.CLOCKS_APART)
    return [
        one(kind, **({"hosts": [host]} if kind in about_hosts else {}), **more.get(kind, {})) for kind in Kind
    ]


CHANGES = {
    Kind.PAUSED: ("/gates/remove", "Remove this gate?"),
    Kind.BREAKER_OPEN: ("/gates/remove-breaker", "Remove this breaker?"),
    Kind.SLOTS_HELD: ("/problems/kill", "Kill 1 task?"),
    Kind.SESSIONS_BLOCKED: ("/problems/unblock", "Unblock 1 session?"),
    Kind.DEAD_LETTERS: ("/dead-letters/redrive", "Redrive 1 dead letter?"),
    Kind.RESOURCE_FULL: ("/resources/capacity", "Capacity of database"),
    Kind.NOTIFICATIONS_FAIL: ("/notifications/test", "Send a test to ops?"),
}
WITHOUT_PAGE = {Kind.STORE_AWAY, Kind.CELL_AWAY, Kind.STORE_SLOW, Kind.TOKEN_EXPIRES}


async def test_each_kind_has_a_card_with_its_words_a_command_and_a_page_that_asks_or_shows_more(
    browser, store, client, all_kinds
):
    await publish(store, *all_kinds)
    told = {each.fingerprint: each for each in (await client.problems()).problems}
    shown = await browser.get("/")
    found_cards = cards(shown.text)

    assert NASTY not in shown.text
    assert set(found_cards) == {each.fingerprint for each in all_kinds}
    for problem in all_kinds:
        card, said = found_cards[problem.fingerprint], told[problem.fingerprint]
        assert " ".join(said.text[1:].split()) in words(card), problem.kind
        assert re.search(r"since (\d{4}-\d\d-\d\d )?\d\d:\d\d UTC, 5 min", words(card))
        assert said.commands[0].command in words(card)
        if change := CHANGES.get(problem.kind):
            path, fields = form_of(card) or ("", {})
            asked = await browser.post(path, **fields)
            assert (path, asked.status_code) == (change[0], 200), problem.kind
            assert f"<h1>{change[1]}</h1>" in asked.text
        else:
            assert form_of(card) is None, problem.kind
        link = link_of(card)
        assert (link is None) is (problem.kind in WITHOUT_PAGE), problem.kind
        if link is not None:
            assert (await browser.get(link)).status_code == 200, link


async def test_dead_letters_of_a_version_are_shown_from_their_card(browser, store, task_states):
    pinned = f"{LAMBDA}@1.2"
    for name in (LAMBDA, pinned):
        await task_states.register(name)
    claimed = await task_states.claimed(lambda_name=pinned)
    await task_states.fail(claimed, message="KeyError: 7")
    cause = causes.cause_of(LAMBDA, int(FailureKind.CALLBACK), "KeyError: 7").fingerprint
    holder = AboutTask(str(UUID(bytes=claimed.task_id)), pinned, "fatal_failure")
    letters = one(Kind.DEAD_LETTERS, key=cause, holders=[holder])
    await publish(store, letters)

    page = await browser.get(link_of(cards((await browser.get("/")).text)[letters.fingerprint]))

    assert page.status_code == 200
    assert str(UUID(bytes=claimed.task_id)) in page.text


async def test_the_worst_stands_first_and_the_rest_is_folded(browser, store):
    many = [one(Kind.DEAD_LETTERS, key=str(number)) for number in range(CARDS_SHOWN + 4)]
    await publish(store, *many, one(Kind.BREAKER_OPEN, severity=Severity.CRITICAL))

    page = (await browser.get("/")).text

    before, _, folded = page.partition('<details class="more-cards"')
    assert [level for level, *_ in _CARD.findall(before)] == ["critical", *["warning"] * (CARDS_SHOWN - 1)]
    assert "5 more" in words(folded.partition("</summary>")[0])
    assert len(_CARD.findall(folded)) == 5


async def test_the_status_line_says_healthy_problems_or_not_known_and_as_of_when(browser, store):
    nobody_looked = (await browser.get("/")).text
    await publish(store, pause_of("deploy"))
    healthy = (await browser.get("/")).text
    await publish(store, *(one(Kind.DEAD_LETTERS, key=str(number)) for number in range(3)))
    problems = (await browser.get("/")).text
    await ran(store, "update problem_board set computed_at = computed_at - interval '2 minutes'")
    stale = (await browser.get("/")).text

    lines = [
        words(page.partition('<p class="board-line')[2].partition("</p>")[0]).partition(">")[2].strip()
        for page in (nobody_looked, healthy, problems, stale)
    ]
    assert lines[0] == "Not known no Frontend has said yet how things stand"
    assert re.fullmatch(r"Healthy as of \d\d:\d\d:\d\d UTC, live stale( 1 note)?", lines[1])
    assert re.fullmatch(r"3 problems as of \d\d:\d\d:\d\d UTC, live stale", lines[2])
    assert re.fullmatch(
        r"3 problems as of \d\d:\d\d:\d\d UTC, stale: things may stand differently now", lines[3]
    )


async def test_an_old_healthy_board_is_not_healthy(browser, store):
    await publish(store)
    await ran(store, "update problem_board set computed_at = computed_at - interval '2 minutes'")

    page = (await browser.get("/tasks")).text

    assert re.search(r'id="mark"[^>]*>Not known, stale</a>', page)


def test_without_an_answer_nothing_is_known():
    assert status_of(None, Viewer("", UNRESTRICTED)).title == "Not known"


async def test_without_postgres_a_page_that_is_opened_says_so(browser, store):
    async with store.connection() as holder, holder.transaction():
        await holder.execute("set local idle_in_transaction_session_timeout = 0")
        await holder.execute("lock table problem_board in access exclusive mode")
        overview = await browser.get("/")
        other = await browser.get("/tasks/17")

    (card,) = cards(overview.text).values()
    assert overview.status_code == 503
    assert "Postgres does not answer: no answer within 2 s" in words(card)
    assert 'id="retry"' in overview.text
    for page in (overview, other):
        assert re.search(r'<a id="mark"[^>]* href="/">1 problem\b', page.text)


async def test_every_page_says_how_many_problems_there_are(browser, store):
    await publish(store, one(Kind.STORE_SLOW, ""), one(Kind.NO_HOST, "", lambdas={}))

    for path, _, _ in PAGES:
        if "{" not in path and path not in ("/live", "/trends", "/search.json", "/sessions/session"):
            page = (await browser.get(path)).text
            assert re.search(r'<a id="mark"[^>]* href="/">2 problems</a>', page), path
    assert ">2 problems</a>" in (await browser.get("/tasks/17")).text


async def test_pages_of_a_lambda_and_of_a_host_have_the_cards_of_theirs(browser, store, all_kinds):
    other = one(Kind.DEAD_LETTERS, "bill.pay", lambdas={"bill.pay": 1})
    await publish(store, *all_kinds, other)

    of_lambda = cards((await browser.get(f"/lambdas/{LAMBDA}")).text)
    of_host = cards((await browser.get(f"/hosts/{HOST_ID}")).text)

    kinds = {each.fingerprint: each.kind for each in (*all_kinds, other)}
    assert {Kind.PAUSED, Kind.BREAKER_OPEN, Kind.DEAD_LETTERS} <= {kinds[each] for each in of_lambda}
    assert other.fingerprint not in of_lambda
    assert {kinds[each] for each in of_host} == {Kind.NO_HOST, Kind.SILENT_HOSTS, Kind.CLOCKS_APART}


async def test_a_gate_is_shown_once_as_a_card_or_as_a_line_and_not_after_it_was_removed(
    browser, store, client, task_states
):
    await task_states.register()
    for name in ("deploy", "fresh"):
        await client.put_gate(name, duly.GateKind.PAUSE, LAMBDA)
    gone = pause_of("gone")
    await publish(store, pause_of("deploy"), gone)

    for path in ("/", f"/lambdas/{LAMBDA}"):
        page = (await browser.get(path)).text
        assert gone.fingerprint not in page, path
        assert "Gate deploy" not in words(page), path
        assert "Gate fresh pauses" in words(page), path


async def test_a_pause_is_ended_from_its_card_and_the_page_of_the_card_follows(
    browser, store, client, task_states
):
    await task_states.register()
    await client.put_gate("deploy", duly.GateKind.PAUSE, LAMBDA)
    await publish(store, pause_of("deploy"))
    (card,) = cards((await browser.get(f"/lambdas/{LAMBDA}")).text).values()
    path, fields = form_of(card) or ("", {})

    done = await browser.confirmed(path, **fields)
    again = await browser.post(path, **fields)

    assert done.request.url.path == f"/lambdas/{LAMBDA}"
    assert "Gate deploy was removed." in done.text
    assert await client.gates() == []
    assert again.status_code == 303


async def test_a_change_leads_back_to_a_page_of_this_console_only(browser, client, task_states):
    await task_states.register()
    await client.put_gate("deploy", duly.GateKind.PAUSE, LAMBDA)
    await browser.get("/gates")

    asked = await browser.post("/gates/remove", name="deploy", back="//example.org/")

    assert "example.org" not in asked.text.partition("<main")[2].replace('value="//example.org/"', "")


async def test_tasks_that_hold_the_slots_are_killed_once_they_were_counted(
    browser, store, client, task_states, all_kinds
):
    held = next(each for each in all_kinds if each.kind is Kind.SLOTS_HELD)
    await publish(store, held)
    path, fields = form_of(cards((await browser.get("/")).text)[held.fingerprint]) or ("", {})

    asked = await browser.post(path, **fields)
    before = await client.get(held.holders[0].task_id)
    done = await browser.confirmed(path, **fields)
    await publish(store)
    later = await browser.post(path, **fields)

    assert "1 task of mail.send is cancelled, and not run again" in words(asked.text)
    assert not before.cancel_requested
    assert "1 task ends with the next heartbeat, or ended before." in done.text
    assert (await client.get(held.holders[0].task_id)).cancel_requested
    assert later.status_code == 303
    assert "not a problem any more" in (await browser.get("/")).text


async def test_a_form_without_tasks_kills_nothing(browser):
    await browser.get("/")

    for ids in ("", "x " * 101):
        assert (await browser.post("/problems/kill", confirm="yes", ids=ids)).status_code == 400


async def test_a_full_resource_gets_another_capacity_from_its_card(browser, store, client):
    await client.put_resource("database", 2)
    full = one(Kind.RESOURCE_FULL, "database")
    await publish(store, full)
    path, fields = form_of(cards((await browser.get("/")).text)[full.fingerprint]) or ("", {})

    asked = await browser.post(path, **fields)
    done = await browser.confirmed(path, **fields, capacity=5)

    assert "New capacity" in asked.text
    assert "The capacity of database is 5 now." in done.text
    assert done.request.url.path == "/"
    assert [each.capacity for each in await client.resources()] == [5]


async def test_a_redrive_from_the_card_redrives_the_tasks_of_this_cause(
    browser, store, client, all_kinds, dead
):
    letters = next(each for each in all_kinds if each.kind is Kind.DEAD_LETTERS)
    await publish(store, letters)
    path, fields = form_of(cards((await browser.get("/")).text)[letters.fingerprint]) or ("", {})

    done = await browser.confirmed(path, **fields)

    assert "1 task was redriven." in done.text
    assert (await client.get(dead)).status is not duly.TaskStatus.FATAL_FAILURE


async def test_blocked_sessions_are_unblocked_from_their_card(browser, store, board, client, task_states):
    await task_states.register()
    keys = ["a", NASTY]
    for key in keys:
        for _ in range(2):
            await client.schedule(LAMBDA, session=duly.Session(key, on_failure=duly.SessionPolicy.BLOCK))
    await task_states.end_all_that_may_run(Outcome.FATAL_FAILURE)
    await board.run_once()
    found_problems = (await client.problems(kinds=[duly.ProblemKind.SESSIONS_BLOCKED])).problems
    path, fields = form_of(cards((await browser.get("/")).text)[found_problems[0].fingerprint]) or ("", {})

    asked = await browser.post(path, **fields)
    sent = {name: unescape(value) for name, value in _HIDDEN.findall(asked.text) if name != "csrf"}
    await client.unblock_session("a")
    done = await browser.post(path, **sent)
    told = (await browser.get("/")).text
    again = await browser.post(path, **sent)

    assert NASTY not in asked.text
    assert "Unblock 2 sessions?" in asked.text
    assert done.status_code == 303
    assert "2 sessions are unblocked." in told
    assert again.status_code == 303
    assert [each async for each in client.sessions(blocked=True)] == []
    for seen in ("", "{", "[1]", "[]", '[["a"]]', '[["a", 1]]', "[" * 100_000):
        bad = await browser.post(path, confirm="yes", seen=seen)
        assert bad.status_code in (400, 413), seen[:20]


async def test_sessions_with_long_keys_are_unblocked_as_many_as_a_form_holds(browser, store):
    task_id = "0190a8a0-0000-7000-8000-000000000000"
    sessions = [
        AboutSession(f"{number:03}{'é' * 250}", task_id, datetime.now(UTC), 1) for number in range(100)
    ]
    blocked = one(Kind.SESSIONS_BLOCKED, sessions=sessions, values={"count": 100})
    await publish(store, blocked)
    path, fields = form_of(cards((await browser.get("/")).text)[blocked.fingerprint]) or ("", {})

    asked = await browser.post(path, **fields)
    sent = {name: unescape(value) for name, value in _HIDDEN.findall(asked.text) if name != "csrf"}
    done = await browser.post(path, **sent)

    number = len(json.loads(sent["seen"]))
    assert 20 < number < 100
    assert f"Unblock {number} sessions?" in asked.text
    assert f"{100 - number} other sessions stay blocked" in asked.text
    assert "The form is too large" not in done.text


async def test_buttons_are_those_of_the_roles_of_the_person(guarded, store, all_kinds):
    await publish(store, *all_kinds)
    by_kind = {each.kind: each.fingerprint for each in all_kinds}
    found_forms = {}
    for principal in ("operator", "owner", "auditor"):
        async with browse(guarded) as browser:
            await browser.sign_in(principal)
            page = (await browser.get("/")).text
            shown = cards(page)
            found_forms[principal] = {
                kind for kind, name in by_kind.items() if name in shown and form_of(shown[name])
            }

    assert found_forms["operator"] == set(CHANGES)
    assert found_forms["owner"] == {Kind.SLOTS_HELD, Kind.DEAD_LETTERS, Kind.SESSIONS_BLOCKED}
    assert found_forms["auditor"] == set()
