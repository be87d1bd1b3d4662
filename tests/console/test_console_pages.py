"""Every page of the console, on a real Frontend and a real store."""

import asyncio
import html
import json
import re
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

import duly
from duly_console.page import PAGE_SIZE
from duly_console.pages import dead_letters
from duly_console.routes import PAGES
from duly_core.gates import store as store_gates
from duly_core.gates.breakers import NewBreaker
from duly_core.results.store import set_results
from duly_core.tasks import causes
from duly_core.tasks import dead_letters as store_dead_letters
from duly_core.tasks.task import HeartbeatAnswer, Result
from duly_frontend.limits import service as limits_service
from duly_wire.enums import Outcome
from duly_wire.ids import new_task_id
from duly_wire.v1 import (
    fleet_pb2_grpc,
    frontend_pb2,
    gates_pb2,
    gates_pb2_grpc,
    graphs_pb2,
    limits_pb2,
    limits_pb2_grpc,
    registry_pb2,
    task_pb2,
    time_tables_pb2,
)
from tests.fixtures import whole
from tests.fixtures.console import browse
from tests.fixtures.problems import pause, ran
from tests.fleet.test_fleet_hosts import a_report

LAMBDA = "mail.send"
NASTY = '<script>alert("x")</script>'


def text_id(task_id: bytes) -> str:
    return str(UUID(bytes=task_id))


async def dead_letter(task_states, message: str = "the mail server refused", **fields: object) -> str:
    claimed = await task_states.claimed(**fields)
    failed = Result(
        claimed.task_id, claimed.token, Outcome.FATAL_FAILURE, failure_kind=1, failure_message=message
    )
    await set_results(task_states.store, [failed])
    return text_id(claimed.task_id)


@pytest.fixture
async def filled(frontend, client, task_states):
    """Return the addresses of all pages, each of something that is there."""
    await task_states.register()
    dead = await dead_letter(task_states)
    graph_id = str(new_task_id())
    node = {"label": "a", "task": {"lambda": LAMBDA}}
    after = {"label": "b", "task": {"lambda": LAMBDA}, "waits_for": [{"label": "a"}]}
    graph = graphs_pb2.ScheduleGraphRequest(graph_id=graph_id, name="g", nodes=[node, after])
    assert not (await frontend.graphs.ScheduleGraph(graph)).HasField("error")
    in_session = {"lambda": LAMBDA, "session": {"key": "a/b c"}}
    await frontend.stub.Schedule(frontend_pb2.ScheduleRequest(tasks=[in_session] * 3))
    table = {"name": "nightly", "lambda": LAMBDA, "cron": "0 2 * * *"}
    await frontend.time_tables.PutTimeTables(time_tables_pb2.PutTimeTablesRequest(tables=[{"table": table}]))
    limits = limits_pb2_grpc.LimitServiceStub(frontend.channel)
    resource = {"name": "database", "capacity": 3, "note": NASTY}
    await limits.PutResource(limits_pb2.PutResourceRequest(resources=[resource]))
    fleet = fleet_pb2_grpc.FleetServiceStub(frontend.channel)
    await fleet.ReportHost(a_report(lambdas=(LAMBDA,)))
    await client.put_pool("mailers", lambdas=[LAMBDA], maximum=2, driver="here")
    return {
        "/hosts/{host_id}": "/hosts/rack-1:1:a",
        "/tasks/{task_id}": f"/tasks/{dead}",
        "/lambdas/{name:path}": f"/lambdas/{LAMBDA}",
        "/sessions/session": "/sessions/session?key=a/b%20c",
        "/graphs/{graph_id}": f"/graphs/{graph_id}",
        "/time-tables/{name}": "/time-tables/nightly",
        "/pools/{name}": "/pools/mailers",
    }


async def test_every_page_is_served_with_what_is_there(browser, filled):
    for path, _, _ in PAGES:
        answer = await browser.get(filled.get(path, path))

        assert answer.status_code == 200, (path, answer.text)
        assert NASTY not in answer.text
    assert "database" in (await browser.get("/resources")).text
    assert "rack-1" in (await browser.get("/hosts")).text
    assert "a/b c" in (await browser.get("/sessions")).text
    assert "nightly" in (await browser.get("/time-tables")).text


async def test_sessions_of_one_key_in_two_namespaces_are_two(browser, frontend, task_states):
    for name in (LAMBDA, "shop/order.price"):
        await task_states.register(name)
    block = {"key": "K", "on_failure": task_pb2.SESSION_POLICY_BLOCK}
    asked = [{"lambda": name, "session": block} for name in (LAMBDA, "shop/order.price", "shop/order.price")]
    answer = await frontend.stub.Schedule(frontend_pb2.ScheduleRequest(tasks=asked))
    default, ours, waiting = (each.task_id for each in answer.results)
    await task_states.fail(await task_states.take_of("shop/order.price"))

    listed = (await browser.get("/sessions")).text
    of_one = (await browser.get("/sessions?namespace=shop")).text
    of_default = (await browser.get("/sessions?namespace=default&blocked=1")).text
    shown = (await browser.get("/sessions/session?namespace=shop&key=K")).text
    task = (await browser.get(f"/tasks/{waiting}")).text
    unblocked = await browser.confirmed("/sessions/unblock", namespace="shop", key="K", blocker=ours)

    assert 'href="/sessions/session?namespace=shop&amp;key=K"' in listed
    assert 'href="/sessions/session?key=K"' in listed
    assert ours in of_one
    assert default not in of_one
    assert "No session is blocked" in of_default
    assert ours in shown
    assert waiting in shown
    assert default not in shown
    assert (
        task.count('href="/sessions/session?namespace=shop&amp;key=K"') == 2
    )  # of the task, and of its reason
    assert "is unblocked" in unblocked.text


async def test_every_page_of_an_empty_installation_is_served(browser):
    for path, _, _ in PAGES:
        if "{" not in path and path != "/sessions/session":
            assert (await browser.get(path)).status_code == 200, path


async def test_what_does_not_exist_is_told_as_a_page(browser):
    for path in (f"/tasks/{new_task_id()}", "/lambdas/gone", f"/graphs/{new_task_id()}", "/nowhere"):
        answer = await browser.get(path)

        assert answer.status_code == 404, path
        assert "<h1>Not found</h1>" in answer.text
    assert (await browser.get("/tasks/17")).status_code in (400, 404, 409)


async def test_names_and_errors_with_markup_are_shown_as_text(browser, task_states):
    await task_states.register()
    dead = await dead_letter(task_states, message=NASTY, collection="c")

    lists = ("/tasks", "/dead-letters", "/dead-letters?by=task", f"/tasks?lambda={NASTY}")
    for path in (f"/tasks/{dead}", *lists, f"/lambdas/{NASTY}", f"/lambdas/{LAMBDA}"):
        answer = await browser.get(path)

        assert NASTY not in answer.text, path
    assert "&lt;script&gt;" in (await browser.get(f"/tasks/{dead}")).text


async def test_a_list_of_tasks_goes_on_behind_its_first_page(browser, frontend, task_states):
    await task_states.register()
    tasks = [{"lambda": LAMBDA} for _ in range(PAGE_SIZE + 3)]
    await frontend.stub.Schedule(frontend_pb2.ScheduleRequest(tasks=tasks))

    first = await browser.get("/tasks?lambda=mail.send")
    following = first.text.split('rel="next" href="')[1].split('"')[0].replace("&amp;", "&")
    second = await browser.get(following)

    assert first.text.count('data-label="Task"') == PAGE_SIZE
    assert second.text.count('data-label="Task"') == 3
    assert 'rel="next"' not in second.text


async def test_lambdas_are_listed_by_pages_and_by_a_part_of_their_name(browser, frontend):
    names = [f"l{number:04}" for number in range(PAGE_SIZE * 2)]
    declared = [{"name": name} for name in [*names, "shop/other"]]
    await frontend.registry.RegisterLambdas(registry_pb2.RegisterLambdasRequest(lambdas=declared))

    first = await browser.get("/lambdas")
    following = first.text.split('rel="next" href="')[1].split('"')[0].replace("&amp;", "&")
    found = await browser.get("/lambdas?name=p/oth")

    assert 'href="/lambdas/l0000"' in first.text
    assert f'href="/lambdas/l{PAGE_SIZE:04}"' in (await browser.get(following)).text
    assert 'href="/lambdas/shop/other"' in found.text
    assert "l0000" not in found.text
    assert (await browser.get("/lambdas/shop/other")).status_code == 200


async def test_the_field_for_searches_opens_the_only_hit_and_says_what_became_of_an_id(browser, task_states):
    await task_states.register()
    gone, task_id = str(new_task_id()), await dead_letter(task_states)

    found = {
        text: (await browser.get("/search", params={"q": text})).headers["location"]
        for text in (task_id.upper(), task_id[-12:], gone, "ail.sen")
    }

    assert found == {
        task_id.upper(): f"/tasks/{task_id}",
        task_id[-12:]: f"/tasks/{task_id}",
        gone: f"/tasks/{gone}",
        "ail.sen": f"/lambdas/{LAMBDA}",
    }
    assert (await browser.get("/tasks", params={"q": "a b"})).headers["location"] == "/search?q=a+b"


async def test_several_hits_are_shown_by_kind_and_told_to_scripts(browser, frontend, task_states):
    for name in ("mail.send", "mail.send.later", "bill.pay"):
        await task_states.register(name)
    in_session = {"lambda": LAMBDA, "session": {"key": "mail to ann"}}
    await frontend.stub.Schedule(frontend_pb2.ScheduleRequest(tasks=[in_session]))

    page = (await browser.get("/search", params={"q": "mail"})).text
    told = (await browser.get("/search.json", params={"q": "mail"})).json()
    nothing = (await browser.get("/search", params={"q": NASTY})).text

    assert page.index('<h2 id="found-lambda">') < page.index('<h2 id="found-session">')
    assert 'href="/lambdas/mail.send.later"' in page
    assert 'href="/sessions/session?key=mail+to+ann"' in page
    assert "bill.pay" not in page
    assert [(group["kind"], [hit["title"] for hit in group["hits"]]) for group in told["groups"]] == [
        ("lambda", ["mail.send", "mail.send.later"]),
        ("session", ["mail to ann"]),
    ]
    assert "Nothing was found" in nothing
    assert NASTY not in nothing
    assert (await browser.get("/search", params={"q": "x" * 301})).status_code == 400


async def test_a_filter_that_is_not_valid_is_refused_with_a_reason(browser):
    for path in ("/tasks?status=odd", "/tasks?ended_from=yesterday", "/tasks?page=odd", "/audit?page=odd"):
        answer = await browser.get(path)

        assert answer.status_code == 400, path
        assert 'role="alert"' in answer.text


async def test_plots_get_counters_and_what_is_so_now(browser, task_states):
    await task_states.register()
    await task_states.new()
    await task_states.claimed()

    told = json.loads((await browser.get("/live")).text)

    assert told["ready"] + told["enqueued"] + told["held"] == 2
    assert {"at", "scheduled", "ended", "median_lateness", "p99_lateness", "oldest"} <= set(told)


async def test_a_payload_is_hidden_until_somebody_asks_and_the_audit_log_says_who(browser, task_states):
    await task_states.register()
    task = await task_states.new(payload=b'{"card":"4111"}')
    path = f"/tasks/{text_id(task.task_id)}"

    hidden = await browser.get(path)
    shown = await browser.post(f"{path}/reveal", reason="ticket 17")
    log = await browser.get("/audit")

    assert "4111" not in hidden.text
    assert "&#34;card&#34;: &#34;4111&#34;" in shown.text
    assert "InspectionService/RevealTask" in log.text
    assert "ticket 17" in log.text
    assert "4111" not in log.text


async def test_a_script_gets_the_revealed_part_alone(browser, task_states):
    await task_states.register()
    task = await task_states.new(payload=b'"secret"')
    path = f"/tasks/{text_id(task.task_id)}"
    await browser.get(path)

    part = await browser.post(
        f"{path}/reveal", headers={"origin": "http://127.0.0.1:7480", "hx-request": "true"}
    )

    assert part.text.lstrip().startswith('<section id="bodies"')


async def test_a_task_that_runs_is_killed_only_after_a_confirmation(browser, task_states):
    await task_states.register()
    task, waiting = await task_states.processing(), await task_states.new()
    path = f"/tasks/{text_id(task.task_id)}"

    page = await browser.get(path)
    asked = await browser.post(f"{path}/kill")
    before = await task_states.heartbeat(task)
    done = await browser.confirmed(f"{path}/kill")

    assert f"{path}/kill" in page.text
    assert (
        f"{text_id(waiting.task_id)}/kill"
        not in (await browser.get(f"/tasks/{text_id(waiting.task_id)}")).text
    )
    assert "Kill this task?" in asked.text
    assert before is HeartbeatAnswer.KEPT
    assert "Its callback is killed with the next heartbeat." in done.text
    assert await task_states.heartbeat(task) is HeartbeatAnswer.KILL_REQUESTED


async def test_a_task_is_cancelled_only_after_a_confirmation(browser, task_states):
    await task_states.register()
    task = await task_states.new()
    path = f"/tasks/{text_id(task.task_id)}"
    await browser.get(path)

    asked = await browser.post(f"{path}/cancel")
    before = await task_states.status(task.task_id)
    done = await browser.confirmed(f"{path}/cancel")

    assert "Cancel this task?" in asked.text
    assert before == "new"
    assert "The task is cancelled." in done.text
    assert await task_states.status(task.task_id) == "cancelled"
    assert "The task is cancelled." not in (await browser.get(path)).text


async def test_dead_letters_are_redriven_one_by_one_and_by_a_filter_that_is_counted_first(
    browser, task_states
):
    await task_states.register()
    one = await dead_letter(task_states)
    for _ in range(3):
        await dead_letter(task_states, collection="c")
    other = await dead_letter(task_states, collection="d")
    await browser.get("/dead-letters")

    single = await browser.confirmed(f"/tasks/{one}/redrive")
    asked = await browser.post("/dead-letters/redrive", collection="c")
    many = await browser.confirmed("/dead-letters/redrive", collection="c")
    none = await browser.post("/dead-letters/redrive", collection="c")

    assert "The task was redriven." in single.text
    assert "Redrive 3 dead letters?" in asked.text
    assert "3 tasks were redriven." in many.text
    assert none.status_code == 303
    assert await task_states.status(UUID(other).bytes) == "fatal_failure"


async def test_dead_letters_of_one_cause_are_a_row_and_are_redriven_at_a_rate(browser, task_states):
    await task_states.register()
    await task_states.register("bill.pay")
    ours = [await dead_letter(task_states, f"ValueError: row {n} of 'ann{n}' is gone") for n in range(3)]
    other = await dead_letter(task_states, "ValueError: no such table")
    same = await dead_letter(task_states, "ValueError: row 9 of 'bob' is gone", lambda_name="bill.pay")

    page = (await browser.get("/dead-letters")).text
    (cause,) = {
        each
        for n, each in re.findall(r"<strong>(\d)</strong>.*?[?&;]cause=(\w+)", page, re.DOTALL)
        if n == "3"
    }
    shown = (await browser.get(f"/dead-letters?cause={cause}")).text
    asked = await browser.post("/dead-letters/redrive", cause=cause, rate="0.1")
    done = await browser.confirmed("/dead-letters/redrive", cause=cause, rate="0.1")
    again = await browser.post("/dead-letters/redrive", cause=cause)

    assert page.count('data-label="Cause"') == 3
    assert "row … of &#39;…&#39; is gone" in page
    assert [each in shown for each in (*ours, other, same)] == [True, True, True, False, False]
    assert "Redrive 3 dead letters?" in asked.text
    assert "(ValueError row … of &#39;…&#39; is gone), due at 0.1 a second, the last in 20 s." in asked.text
    assert "3 tasks were redriven." in done.text
    assert again.status_code == 303
    states = [await task_states.status(UUID(each).bytes) for each in (*ours, other, same)]
    assert states == ["new", "new", "new", "fatal_failure", "fatal_failure"]


async def test_dead_letters_are_filtered_by_attributes_and_no_redrive_of_many_goes_beyond_them(
    browser, client, task_states
):
    await task_states.register()
    dead = []
    for order in (17, 18):
        await client.schedule(LAMBDA, attributes={"order": order})
        claimed = await task_states.take_of(LAMBDA)
        await task_states.fail(claimed, "KeyError: gone")
        dead.append(claimed.task_id)
    ours, other = map(text_id, dead)

    causes = (await browser.get("/dead-letters?where=order%3D17")).text
    listed = (await browser.get("/dead-letters?where=order%3D17&by=task")).text
    (cause,) = set(re.findall(r"[?&;]cause=(\w+)", causes))
    of_cause = (await browser.get(f"/dead-letters?where=order%3D17&cause={cause}")).text
    refused = [
        await browser.post("/dead-letters/redrive", where="order=17", **more)
        for more in ({}, {"confirm": "yes"}, {"cause": cause})
    ]

    assert "<strong>1</strong>" in causes
    for page in (causes, listed, of_cause):
        assert 'action="/dead-letters/redrive"' not in page
        assert "A redrive of many takes no attributes." in page
        assert 'value="order=17"' in page
    for page in (listed, of_cause):
        assert (ours in page, other in page) == (True, False)
        assert f'action="/tasks/{ours}/redrive"' in page
    assert "/dead-letters?by=task&amp;where=order%3D17" in causes
    assert [each.status_code for each in refused] == [400, 400, 400]
    assert [await task_states.status(each) for each in dead] == ["fatal_failure", "fatal_failure"]
    assert (await browser.get("/dead-letters?where=Order")).status_code == 400


async def test_the_button_that_changes_nothing_has_the_focus(browser, task_states):
    await task_states.register()
    task = await task_states.new()
    await browser.get("/tasks")

    asked = await browser.post(f"/tasks/{text_id(task.task_id)}/cancel")

    (focused,) = re.findall(r"<[^>]+ autofocus>[^<]*<", asked.text)
    assert "Back, change nothing" in focused


async def test_a_task_says_an_error_once(browser, task_states):
    await task_states.register(max_attempts=3)
    task = await task_states.new()
    for outcome in (Outcome.RETRIABLE_FAILURE, Outcome.RETRIABLE_FAILURE, Outcome.FATAL_FAILURE):
        claimed = await task_states.take()
        failed = Result(
            claimed.task_id,
            claimed.token,
            outcome,
            failure_kind=1,
            failure_message="ValueError: gone",
            retry_after=timedelta(),
        )
        await set_results(task_states.store, [failed])

    page = (await browser.get(f"/tasks/{text_id(task.task_id)}")).text

    assert page.count('data-label="Run"') == 3
    assert page.count("ValueError: gone") == 1


async def test_a_lambda_shows_what_bears_on_its_tasks_and_is_paused_and_resumed(
    browser, client, frontend, task_states
):
    await task_states.register()
    await dead_letter(task_states, "ValueError: row 1 is gone")
    await dead_letter(task_states, "ValueError: row 2 is gone")
    await client.put_gate("sale", duly.GateKind.DROP, "mail.*", collection="sale", reason="the sale is over")
    await client.put_gate("elsewhere", duly.GateKind.PAUSE, "bill.pay")
    await client.put_breaker(LAMBDA, 0.25)
    await client.put_resource(f"lambda:{LAMBDA}", 0)
    await client.put_resource("database", 5)
    await client.put_resource("unused", 5)
    await client.schedule(LAMBDA, resources=["database"])
    fleet = fleet_pb2_grpc.FleetServiceStub(frontend.channel)
    await fleet.ReportHost(a_report(lambdas=(LAMBDA,)))
    path = f"/lambdas/{LAMBDA}"

    page = (await browser.get(path)).text
    said = {"duration": "2h", "reason": NASTY}
    asked = await browser.post(f"{path}/pause", **said)
    paused = await browser.confirmed(f"{path}/pause", **said)
    gates = {each.name: each for each in await client.gates()}
    longer = await browser.post(f"{path}/pause")
    resume = shown_in((await browser.post(f"{path}/resume")).text, f"{path}/resume")
    await client.put_gate("later", duly.GateKind.PAUSE, LAMBDA)
    resumed = await browser.post(f"{path}/resume", **resume)
    after = {each.name for each in await client.gates()}
    told = (await browser.get(path)).text
    await client.put_gate(f"pause-{LAMBDA}", duly.GateKind.PAUSE, "bill.pay")
    taken = await browser.post(f"{path}/pause")

    for text in (
        "the sale is over",
        "25 % of 20",
        'href="/hosts/rack-1%3A1%3Aa"',
        f"lambda:{LAMBDA}",
        ">database<",
    ):
        assert text in page, text
    assert "elsewhere" not in page
    assert ">unused<" not in page
    assert re.search(r"<strong>2</strong>.*?row … is gone", page, re.DOTALL)
    assert ">closed</span>" in page  # its quota is 0
    assert "1 new" in asked.text
    assert f"{LAMBDA} is paused." in paused.text
    assert NASTY not in paused.text
    gate = gates[f"pause-{LAMBDA}"]
    assert (gate.lambda_name, gate.kind, gate.reason) == (LAMBDA, duly.GateKind.PAUSE, NASTY)
    assert gate.expires_at is not None
    assert re.search(rf"Gate pause-{LAMBDA} is there already.* wait until 2", longer.text)
    assert resumed.status_code == 303
    assert after == {"sale", "elsewhere", "later"}
    assert f"Removed: pause-{LAMBDA}. Other gates on tasks of {LAMBDA} stay: later, sale." in told
    assert taken.status_code == 409
    assert "it is on bill.pay" in taken.text


async def test_a_gate_without_a_name_gets_the_one_of_the_command(browser, client, task_states):
    await task_states.register()
    form = shown_in((await browser.get("/gates")).text, "/gates/put")

    await browser.confirmed("/gates/put", **form | {"lambda": LAMBDA, "collection": "sale"})

    assert [each.name for each in await client.gates()] == [f"pause-{LAMBDA}-sale"]


async def test_a_redrive_that_takes_long_stops_in_time_and_tells_what_it_did(
    browser, task_states, monkeypatch
):
    await task_states.register()
    for _ in range(3):
        await dead_letter(task_states)
    make = dead_letters._request

    def one_a_call(page):
        request = make(page)
        request.limit = 1
        return request

    monkeypatch.setattr(dead_letters, "_request", one_a_call)
    monkeypatch.setattr(dead_letters, "_SPENT", 0)
    await browser.get("/dead-letters")

    stopped = await browser.confirmed("/dead-letters/redrive")
    monkeypatch.setattr(dead_letters, "_SPENT", 0.5)
    rest = await browser.post("/dead-letters/redrive", **shown_in(stopped.text, "/dead-letters/redrive"))

    assert "1 task was redriven. There are more dead letters to look at." in stopped.text
    assert "2 tasks were redriven." in (await browser.get(rest.headers["location"])).text


async def test_a_redrive_by_cause_goes_on_behind_the_dead_letters_that_it_has_seen(
    browser, task_states, monkeypatch
):
    await task_states.register()
    others = [await dead_letter(task_states, "OSError: away") for _ in range(3)]
    ours = [await dead_letter(task_states, "ValueError: gone") for _ in range(2)]
    cause = causes.cause_of(LAMBDA, 1, "ValueError: gone").fingerprint
    path = "/dead-letters/redrive"
    asked = {"cause": cause, "lambda": LAMBDA, "rate": "0.1"}
    monkeypatch.setattr(store_dead_letters, "_LOOKED_AT", 1)
    monkeypatch.setattr(store_dead_letters, "_MOST_LOOKED_AT", 1)
    await browser.get("/dead-letters")

    monkeypatch.setattr(dead_letters, "_MOST_A_REQUEST", 2)
    unseen = await browser.post(path, **asked)
    told = (await browser.get(unseen.headers["location"])).text
    monkeypatch.setattr(dead_letters, "_MOST_A_REQUEST", 4)
    counted = await browser.post(path, **asked)
    monkeypatch.setattr(dead_letters, "_MOST_A_REQUEST", 1)
    first = await browser.post(path, **shown_in(counted.text, path))
    second = await browser.post(path, **shown_in(first.text, path))
    last = (await browser.get(second.headers["location"])).text
    bad = await browser.post(path, **shown_in(first.text, path) | {"offset": "later"})

    assert "None of the 10,000 dead letters that ended first has this cause, and there are more" in told
    assert f"duly redrive --lambda {LAMBDA} --cause {cause} --rate 0.1/s" in told
    assert "Redrive at least 1 dead letter?" in counted.text
    assert "1 task was redriven." in first.text
    assert "1 task was redriven." in last
    assert bad.status_code == 400
    assert [await task_states.status(UUID(each).bytes) for each in (*others, *ours)] == [
        *["fatal_failure"] * 3,
        *["new"] * 2,
    ]
    one, other = [(await task_states.row(UUID(each).bytes))["next_trigger_at"] for each in ours]
    assert other - one > timedelta(seconds=5)


async def test_a_dead_letter_that_ends_after_the_count_is_not_redriven(browser, task_states):
    await task_states.register()
    counted = await dead_letter(task_states)
    await browser.get("/dead-letters")
    asked = await browser.post("/dead-letters/redrive")
    as_of = re.findall(r'name="as_of" value="([^"]+)"', asked.text)
    later = await dead_letter(task_states)

    done = await browser.post("/dead-letters/redrive", confirm="yes", as_of=as_of[0])
    bad = await browser.post("/dead-letters/redrive", confirm="yes", as_of="yesterday")

    assert done.status_code == 303
    assert bad.status_code == 400
    assert await task_states.status(UUID(counted).bytes) == "new"
    assert await task_states.status(UUID(later).bytes) == "fatal_failure"


async def test_a_gate_of_an_unknown_priority_is_refused(browser):
    await browser.get("/gates")

    answer = await browser.post(
        "/gates/put", name="g", kind="pause", priority="bogus", confirm="yes", **{"lambda": "*"}
    )

    assert answer.status_code == 400
    assert "No gate is in force." in (await browser.get("/gates")).text


async def test_a_setting_is_changed_and_reset(browser):
    name = "store_consumer.poll_interval"
    await browser.get("/settings")

    changed = await browser.confirmed("/settings/change", name=name, value="7s")
    reset = await browser.confirmed("/settings/reset", name=name)
    refused = await browser.confirmed("/settings/change", name=name, value="soon")

    assert f"{name} is 7s now." in changed.text
    assert f"{name} was reset." in reset.text
    assert refused.status_code == 409
    assert "soon" in refused.text


async def test_a_resource_gets_another_capacity_and_keeps_the_rest(browser, frontend):
    limits = limits_pb2_grpc.LimitServiceStub(frontend.channel)
    resource = {
        "name": "database",
        "capacity": 3,
        "note": "replica",
        "rate": {"units": 5, "period": {"seconds": 1}},
    }
    await limits.PutResource(limits_pb2.PutResourceRequest(resources=[resource]))
    await browser.get("/resources")

    done = await browser.confirmed("/resources/capacity", name="database", capacity="8")

    (kept,) = (await limits.ListResources(limits_pb2.ListResourcesRequest())).resources
    assert "The capacity of database is 8 now." in done.text
    assert (kept.limit.capacity, kept.limit.note, kept.limit.rate.units) == (8, "replica", 5)
    assert (await browser.post("/resources/capacity", name="database", capacity="-1")).status_code == 400


async def test_the_page_of_resources_says_who_set_or_declared_each(browser, frontend):
    limits = limits_pb2_grpc.LimitServiceStub(frontend.channel)
    await limits.PutResource(limits_pb2.PutResourceRequest(resources=[{"name": "database", "capacity": 3}]))
    declared = {
        "name": "x.y",
        "owner": NASTY,
        "version": "7",
        "declared_resources": [{"name": "gpu", "capacity": 1}],
    }
    await frontend.registry.RegisterLambdas(registry_pb2.RegisterLambdasRequest(lambdas=[declared]))

    page = (await browser.get("/resources")).text

    assert "set by an operator" in page
    assert f"declared by {NASTY}, version 7" in html.unescape(page)
    assert NASTY not in page


async def test_a_resource_that_somebody_changed_meanwhile_is_not_changed(browser, frontend):
    limits = limits_pb2_grpc.LimitServiceStub(frontend.channel)
    request = limits_pb2.PutResourceRequest(resources=[{"name": "database", "capacity": 3}])
    await limits.PutResource(request)
    page = (await browser.get("/resources")).text
    (shown,) = re.findall(r'name="changed_at" value="([^"]+)"', page)
    asked = await browser.post("/resources/capacity", name="database", capacity="8", changed_at=shown)
    request.resources[0].capacity = 5
    await limits.PutResource(request)

    refused = await browser.post(
        "/resources/capacity", name="database", capacity="8", changed_at=shown, confirm="yes"
    )

    (kept,) = (await limits.ListResources(limits_pb2.ListResourcesRequest())).resources
    assert f'name="changed_at" value="{shown}"' in asked.text
    assert (refused.status_code, kept.limit.capacity) == (409, 5)
    assert "Somebody changed database" in refused.text


async def test_graphs_time_tables_sessions_and_lambdas_are_changed(browser, filled, frontend):
    await browser.get("/")

    cancelled = await browser.confirmed(f"{filled['/graphs/{graph_id}']}/cancel")
    paused = await browser.confirmed("/time-tables/nightly/pause", note="holiday")
    resumed = await browser.confirmed("/time-tables/nightly/resume")
    transferred = await browser.confirmed(f"/lambdas/{LAMBDA}/change", owner="other-team")
    unblocked = await browser.confirmed("/sessions/unblock", key="a/b c", blocker="")

    assert "The graph is cancelled." in cancelled.text
    assert "paused" in paused.text
    assert "holiday" in paused.text
    assert "The time table is resumed." in resumed.text
    assert "other-team" in transferred.text
    assert unblocked.status_code == 409  # it is not blocked


async def test_a_gate_is_counted_set_and_removed(browser, task_states):
    await task_states.register()
    await task_states.new()
    await browser.get("/gates")
    said = {"name": "sale", "kind": "pause", "lambda": LAMBDA, "duration": "2h", "reason": NASTY}

    asked = await browser.post("/gates/put", **said)
    done = await browser.confirmed("/gates/put", **said)
    refused = await browser.post("/gates/put", name="sale", kind="delay", delay="soon")
    removes = await browser.post("/gates/remove", name="sale")
    removed = await browser.confirmed("/gates/remove", name="sale")

    assert "1 new" in asked.text
    assert "Gate sale is in force." in done.text
    assert "Gate sale hits now: 1 new." in removes.text
    assert NASTY not in done.text
    assert "in 1 h 59 min" in done.text or "in 2 h" in done.text
    assert refused.status_code == 400
    assert "Gate sale was removed." in removed.text
    assert "No gate is in force." in removed.text


async def test_the_gate_of_a_breaker_and_one_of_a_newer_release_are_counted_and_removed(
    browser, store, task_states
):
    await task_states.register()
    await task_states.new()
    await pause(store, f"breaker:{LAMBDA}", LAMBDA)
    await pause(store, "newer", LAMBDA)
    await ran(store, "alter table gate drop constraint gate_kind_check")
    await ran(store, "update gate set kind = 'slow' where name = 'newer'")
    await browser.get("/gates")

    for name in (f"breaker:{LAMBDA}", "newer"):
        asked = await browser.post("/gates/remove", name=name)
        removed = await browser.confirmed("/gates/remove", name=name)

        assert f"Gate {name} hits now: 1 new." in asked.text
        assert f"Gate {name} was removed." in removed.text


async def test_a_gate_and_a_breaker_are_removed_also_if_nothing_can_be_counted(
    frontend, store, task_states, monkeypatch
):
    async def never(*_what, **_how):
        await asyncio.Event().wait()

    monkeypatch.setattr(store_gates, "count_hits", never)
    monkeypatch.setattr(limits_service, "read_backlog", never)
    await task_states.register()
    await pause(store, "deploy", LAMBDA)
    minute = timedelta(minutes=1)
    await whole.put_breaker(store, NewBreaker(LAMBDA, 0.5, 10, minute, minute, 3, "ann", "a test"))
    async with browse(frontend, page_timeout=timedelta(seconds=2)) as browser:
        await browser.get("/gates")
        asked = await browser.post("/gates/remove", name="deploy")
        removed = await browser.confirmed("/gates/remove", name="deploy")
        asked_of_breaker = await browser.post("/gates/remove-breaker", **{"lambda": LAMBDA})
        removed_breaker = await browser.confirmed("/gates/remove-breaker", **{"lambda": LAMBDA})

    for page in (asked, asked_of_breaker):
        assert "What it holds could not be counted." in page.text
    assert "Gate deploy was removed." in removed.text
    assert f"The breaker of {LAMBDA} was removed." in removed_breaker.text


def shown_in(page, action):
    """What the form with this action posts as it was loaded."""
    (form,) = re.findall(rf'<form[^>]*action="{action}".*?</form>', page, re.DOTALL)
    values = {
        name: html.unescape(value)
        for name, value in re.findall(
            r'<input(?![^>]*type="checkbox")[^>]*? name="(\w+)"[^>]*? value="([^"]*)"', form
        )
    }
    for name, options in re.findall(r'<select[^>]* name="(\w+)">(.*?)</select>', form, re.DOTALL):
        (values[name],) = re.findall(r'<option value="(\w*)" selected>', options)
    return values


async def test_a_form_of_a_gate_shows_all_of_it_and_sends_only_what_differs(browser, client, task_states):
    await task_states.register()
    whole = {
        "collection": "sale",
        "priority": duly.Priority.LOW,
        "session": "ann",
        "delay": timedelta(minutes=90),
    }
    end = timedelta(hours=1)
    await client.put_gate(
        "g", duly.GateKind.DELAY, LAMBDA, **whole, reason="stock", duration=end, owner="ann"
    )
    form = shown_in((await browser.get("/gates?gate=g")).text, "/gates/put")
    # meanwhile somebody else
    await client.put_gate("g", reason="stock & mail", session=None)
    (before,) = await client.gates()

    asked = await browser.post("/gates/put", **form | {"collection": "spring"})
    done = await browser.confirmed("/gates/put", **form | {"collection": "spring"})
    (changed,) = await client.gates()
    nothing = await browser.post("/gates/put", **form)
    cleared = await browser.confirmed(
        "/gates/put", **form | {"priority": "", "no_end": "yes", "kind": "pause"}
    )
    (last,) = await client.gates()

    names = ("name", "kind", "lambda", "collection", "priority", "session", "delay", "reason")
    assert [form[name] for name in names] == ["g", "delay", LAMBDA, "sale", "low", "ann", "90m", "stock"]
    assert [form[f"was_{name}"] for name in names] == [form[name] for name in names]
    assert "It is there already, and what you do not change stays." in asked.text
    assert "Gate g is in force." in done.text
    assert changed == replace(before, collection="spring", created_at=changed.created_at)
    assert (nothing.status_code, cleared.status_code) == (400, 200)
    expected = replace(changed, priority=None, expires_at=None, kind=duly.GateKind.PAUSE, delay=None)
    assert last == replace(expected, created_at=last.created_at)


async def test_a_form_of_a_new_gate_leaves_a_gate_of_its_name_what_it_does_not_say(
    browser, client, task_states
):
    await task_states.register()
    await client.put_gate(
        "g", duly.GateKind.PAUSE, LAMBDA, collection="sale", reason="stock", duration=timedelta(hours=1)
    )
    (before,) = await client.gates()
    form = shown_in((await browser.get("/gates")).text, "/gates/put")

    await browser.confirmed("/gates/put", **form | {"name": "g", "reason": "mail"})

    (after,) = await client.gates()
    assert after == replace(before, reason="mail")


async def test_a_setting_that_somebody_changed_meanwhile_is_not_changed(browser, client):
    name = "store_consumer.poll_interval"
    await browser.get("/settings")
    await client.set_setting(name, "9s")

    refused = await browser.post("/settings/change", name=name, was="7s", value="8s")
    done = await browser.confirmed("/settings/change", name=name, was="9s", value="8s")

    assert refused.status_code == 409
    assert f"Somebody changed {name} to 9s since this page was loaded" in refused.text
    assert f"{name} is 8s now." in done.text


async def test_a_time_table_that_is_paused_meanwhile_keeps_its_note(browser, client, task_states):
    await task_states.register()
    await client.create_table("nightly", LAMBDA, cron="@daily")
    form = shown_in((await browser.get("/time-tables/nightly")).text, "/time-tables/nightly/pause")
    await client.pause_table("nightly", note="the warehouse moves")

    await browser.confirmed("/time-tables/nightly/pause", **form)

    assert (await client.table("nightly")).pause_note == "the warehouse moves"


async def test_a_time_table_shows_which_ticks_its_calendar_leaves_out_or_moves(browser, client, task_states):
    await task_states.register()
    await client.put_calendar("office", weekend=["SAT", "SUN"])
    await client.create_table("left.out", LAMBDA, cron="0 8 * * *", calendar="office")
    await client.create_table(
        "moved", LAMBDA, cron="0 8 * * 0,1", calendar="office", on_closed=duly.OnClosed.NEXT
    )

    left_out = (await browser.get("/time-tables/left.out")).text
    moved = (await browser.get("/time-tables/moved")).text

    assert "left out: Saturday is a weekend day" in left_out
    assert re.search(r"moved from \S+ 08:00:00: Sunday is a weekend day; one task with the tick there", moved)


async def test_breakers_are_shown_and_removed(browser, frontend, task_states):

    from duly_wire.time_conversion import to_duration

    await task_states.register()
    gates = gates_pb2_grpc.GateServiceStub(frontend.channel)
    minute = to_duration(timedelta(minutes=1))
    breaker = gates_pb2.Breaker(
        failure_rate=0.5, minimum=20, window=minute, pause=minute, probes=3, **{"lambda": LAMBDA}
    )
    await gates.PutBreaker(gates_pb2.PutBreakerRequest(breaker=breaker))

    page = await browser.get("/gates")
    removed = await browser.confirmed("/gates/remove-breaker", **{"lambda": LAMBDA})

    assert "50 % of 20 or more in 1 min" in page.text
    assert f"The breaker of {LAMBDA} was removed." in removed.text


async def test_the_overview_says_which_gates_hold_tasks_back(browser, frontend, task_states):
    await task_states.register()
    gates = gates_pb2_grpc.GateServiceStub(frontend.channel)
    scope = gates_pb2.GateScope(collection="sale", **{"lambda": LAMBDA})
    gate = gates_pb2.Gate(name="g", kind=gates_pb2.GATE_KIND_PAUSE, scope=scope, reason="<b>stock</b>")
    await gates.PutGate(gates_pb2.PutGateRequest(gate=gate))

    page = await browser.get("/")

    assert f"pauses some tasks of {LAMBDA}: &lt;b&gt;stock&lt;/b&gt;" in page.text


async def test_a_task_that_waits_says_why_and_what_happened(browser, task_states):
    await task_states.register()
    task = await task_states.new()

    page = await browser.get(f"/tasks/{text_id(task.task_id)}")

    assert "What it waits for" in page.text
    assert 'data-label="What">scheduled' in page.text
    assert 'data-label="Next step">at once' in page.text


async def test_queues_are_filtered_and_ordered(browser, task_states):
    await task_states.register()
    await task_states.register("bill.pay")
    await task_states.new()
    await task_states.new(lambda_name="bill.pay")

    found = await browser.get("/queues?lambda=bill.*&order=age")
    none = await browser.get("/queues?priority=urgent")

    assert "bill.pay" in found.text
    assert LAMBDA not in found.text
    assert "No queue with tasks matches." in none.text
    assert (await browser.get("/queues?order=odd")).status_code == 400
