"""Sessions from the SDK and from the shell, and every refusal."""

import json
from datetime import UTC, datetime, timedelta

import pytest

import duly
from duly_wire.enums import Outcome
from duly_wire.v1 import frontend_pb2, sessions_pb2, sessions_pb2_grpc, task_pb2
from tests.fixtures.lost_replies import lose_first_reply
from tests.fixtures.services import refusal
from tests.fixtures.task_states import LAMBDA

KEY = "vlan-7"


@pytest.fixture
async def registered(task_states):
    await task_states.register()


async def test_a_task_says_its_session_and_waits_for_its_turn(client, registered):
    blocking = duly.Session(KEY, duly.SessionOrder.DUE, duly.SessionPolicy.BLOCK)
    first = await client.schedule(LAMBDA, session=KEY)
    second = await client.schedule(LAMBDA, session=blocking)

    waiting = await client.get(second)

    assert (await client.get(first)).session == duly.Session(KEY)
    assert waiting.session == blocking
    assert waiting.status is duly.TaskStatus.WAITING
    assert not waiting.status.is_final
    assert waiting.next_trigger_at is None


async def test_a_session_is_read_listed_and_unblocked(client, registered, task_states):
    first = await client.schedule(LAMBDA, session=duly.Session(KEY, on_failure=duly.SessionPolicy.BLOCK))
    second = await client.schedule(LAMBDA, session=KEY)
    await client.schedule(LAMBDA, session="another")

    state = await client.get_session(KEY)
    assert state is not None
    assert (state.length, state.head_task_id, state.head_status) == (2, first.task_id, duly.TaskStatus.NEW)
    assert state.waiting_task_ids == (second.task_id,)
    assert not state.is_blocked
    assert [each.key async for each in client.sessions(page_size=1)] == ["another", KEY]
    with pytest.raises(duly.SessionNotBlockedError):
        await client.unblock_session(KEY)

    await task_states.end_all_that_may_run(Outcome.FATAL_FAILURE)

    (blocked,) = [each async for each in client.sessions(blocked=True)]
    assert blocked.is_blocked
    assert (blocked.blocked_by_task_id, blocked.head_task_id) == (first.task_id, None)
    assert blocked.blocked_at is not None
    await client.unblock_session(KEY)
    assert (await client.get(second)).status is duly.TaskStatus.NEW
    await client.cancel(second)
    assert await client.get_session(KEY) is None


async def test_an_invalid_session_is_refused_with_its_field_and_nothing_is_written(
    frontend, registered, client
):
    for session, field in [
        (task_pb2.Session(), "session.key"),
        (task_pb2.Session(key="k" * 256), "session.key"),
        (task_pb2.Session(key="a\0b"), "session.key"),
        (task_pb2.Session(key=KEY, order=7), "session.order"),
        (task_pb2.Session(key=KEY, on_failure=7), "session.on_failure"),
    ]:
        new = frontend_pb2.NewTask(payload=b"{}", session=session, **{"lambda": LAMBDA})
        request = frontend_pb2.ScheduleRequest(tasks=[new])

        (result,) = (await frontend.stub.Schedule(request)).results

        assert result.error.code == task_pb2.ERROR_CODE_INVALID_ARGUMENT
        assert result.error.field == field
        assert [each async for each in client.list()] == []


async def test_an_invalid_request_is_refused_as_a_whole(frontend):
    for method, request_, field in [
        ("GetSession", sessions_pb2.GetSessionRequest(), "keys"),
        ("GetSession", sessions_pb2.GetSessionRequest(keys=["a"], max_tasks=1001), "max_tasks"),
        ("GetSession", sessions_pb2.GetSessionRequest(keys=["a"], namespace="a/b"), "namespace"),
        ("GetSession", sessions_pb2.GetSessionRequest(keys=["a"], namespace="default"), "namespace"),
        ("ListSessions", sessions_pb2.ListSessionsRequest(namespace="Shop"), "namespace"),
        ("UnblockSession", sessions_pb2.UnblockSessionRequest(keys=["a"], namespace="a\0"), "namespace"),
        ("ListSessions", sessions_pb2.ListSessionsRequest(page_size=-1), "page_size"),
        ("ListSessions", sessions_pb2.ListSessionsRequest(page_token="?"), "page_token"),
        ("ListSessions", sessions_pb2.ListSessionsRequest(page_token="AA=="), "page_token"),
        ("UnblockSession", sessions_pb2.UnblockSessionRequest(keys=["a"] * 1001), "keys"),
    ]:
        stub = sessions_pb2_grpc.SessionServiceStub(frontend.channel)

        assert (await refusal(getattr(stub, method)(request_))).field == field


async def test_the_shell_shows_a_session_and_why_it_does_not_move_on(
    client, registered, task_states, run_duly
):
    scheduled = await run_duly(
        "schedule", LAMBDA, "--session", KEY, "--session-on-failure", "block", "--session-order", "due"
    )
    assert scheduled.exit_code == 0
    waiting = await client.schedule(LAMBDA, session=KEY)
    await task_states.end_all_that_may_run(Outcome.FATAL_FAILURE)

    none = await run_duly("sessions", "list", "--blocked", "--namespace", "shop")
    listed = await run_duly("sessions", "list", "--blocked")
    shown = await run_duly("sessions", "get", KEY)
    as_json = json.loads((await run_duly("sessions", "get", KEY, "--json")).stdout)

    blocker = scheduled.stdout.strip()
    assert none.stdout == "no session is blocked\n"
    assert KEY in listed.stdout
    assert blocker in shown.stdout
    assert waiting.task_id in shown.stdout
    assert as_json["blocked_by_task_id"] == blocker
    assert (await run_duly("sessions", "unblock", KEY)).stdout == f"{KEY}: unblocked\n"
    again = await run_duly("sessions", "unblock", KEY)
    assert again.exit_code == 1
    assert "not blocked" in again.stderr
    assert (await run_duly("sessions", "get", "unknown")).exit_code == 1
    assert (await run_duly("schedule", LAMBDA, "--session-order", "due")).exit_code == 2
    assert (await run_duly("schedule", LAMBDA, "--session", KEY, "--session-order", "odd")).exit_code == 2


async def test_the_shell_names_the_namespace_of_a_session(client, registered, task_states, run_duly):
    await task_states.register("shop/order.price", max_attempts=1)
    block = duly.Session(KEY, on_failure=duly.SessionPolicy.BLOCK)
    ours = await client.schedule("shop/order.price", session=block)
    await client.schedule("shop/order.price", session=KEY)
    await client.schedule(LAMBDA, session=KEY, delay=timedelta(hours=1))
    claimed = await task_states.take_of("shop/order.price")
    await task_states.fail(claimed)

    listed = [line.split()[:2] for line in (await run_duly("sessions", "list")).stdout.splitlines()[1:]]
    of_one = (await run_duly("sessions", "list", "--namespace", "default")).stdout
    shown = await run_duly("sessions", "get", "--namespace", "shop", KEY)
    default = json.loads((await run_duly("sessions", "get", KEY, "--json")).stdout)

    assert listed == [["default", KEY], ["shop", KEY]]
    assert "shop" not in of_one
    assert ours.task_id in shown.stdout
    assert "namespace  shop" in shown.stdout
    assert (default["namespace"], default["blocked_by_task_id"]) == ("", None)
    assert (await run_duly("sessions", "unblock", KEY)).exit_code == 1
    assert (await run_duly("sessions", "unblock", "--namespace", "shop", KEY)).exit_code == 0
    missing = await run_duly("sessions", "get", "--namespace", "ship", KEY)
    assert (missing.exit_code, "namespace 'ship'" in missing.stderr) == (1, True)


@pytest.mark.parametrize("field", ["scheduled_at", "delay"])
async def test_the_time_of_a_task_in_order_of_due_times_is_not_changed(client, registered, field):
    task = await client.schedule(LAMBDA, session=duly.Session(KEY, duly.SessionOrder.DUE))
    when = {"delay": timedelta(hours=1)} if field == "delay" else {"at": datetime.now(UTC)}

    with pytest.raises(duly.InvalidTaskError, match="cancel the task, and schedule it anew") as refused:
        await client.update(task, **when)

    assert refused.value.field == field
    assert (await client.get(task)).edits == 0


async def test_an_unblock_whose_reply_was_lost_does_not_end_the_next_block(
    client, registered, task_states, monkeypatch
):
    block = duly.Session(KEY, on_failure=duly.SessionPolicy.BLOCK)
    first, second, _ = [await client.schedule(LAMBDA, session=block) for _ in range(3)]
    await task_states.end_all_that_may_run(Outcome.FATAL_FAILURE)
    caller = client._caller
    lose_first_reply(monkeypatch, caller.sessions, "UnblockSession")

    await client.unblock_session(KEY)
    await task_states.end_all_that_may_run(Outcome.FATAL_FAILURE)
    await client.unblock_session(KEY, blocked_by=first.task_id)

    state = await client.get_session(KEY)
    assert state is not None
    assert state.blocked_by_task_id == second.task_id


async def test_the_tasks_that_block_are_given_for_all_sessions_or_none(frontend, registered):
    sessions = sessions_pb2_grpc.SessionServiceStub(frontend.channel)
    ask = sessions_pb2.UnblockSessionRequest

    answers = [
        await refusal(sessions.UnblockSession(request))
        for request in (
            ask(keys=["a", "b"], blocked_by_task_ids=[""]),
            ask(keys=["a", "a"], blocked_by_task_ids=["", ""]),
            ask(keys=["a"], blocked_by_task_ids=["no id"]),
        )
    ]

    assert [answer.field for answer in answers] == ["blocked_by_task_ids", "keys", "blocked_by_task_ids"]


async def test_more_waiting_tasks_than_one_answer_holds_are_refused(frontend, registered):
    sessions = sessions_pb2_grpc.SessionServiceStub(frontend.channel)
    keys = [str(number) for number in range(11)]

    answer = await refusal(sessions.GetSession(sessions_pb2.GetSessionRequest(keys=keys, max_tasks=1_000)))

    assert (answer.field, "at most 10,000 for all sessions" in answer.message) == ("max_tasks", True)


async def test_all_blocked_sessions_of_a_lambda_are_counted_and_unblocked(
    client, registered, task_states, run_duly
):
    pinned = f"{LAMBDA}@1.2"
    for name in ("other.job", pinned):
        await task_states.register(name)
    for name, key in ((LAMBDA, "a"), (pinned, "b"), ("other.job", "c")):
        for _ in range(2):
            await client.schedule(name, session=duly.Session(key, on_failure=duly.SessionPolicy.BLOCK))
    await task_states.end_all_that_may_run(Outcome.FATAL_FAILURE)
    for name in ("other.job", pinned):
        await task_states.fail(await task_states.take_of(name))
    all_of_it = ["sessions", "unblock", "--blocked", "--lambda", LAMBDA]

    counted = await run_duly(*all_of_it, "--dry-run")
    asked = await run_duly(*all_of_it)
    done = await run_duly(*all_of_it, "--yes")
    none = await run_duly(*all_of_it, "--yes")
    several = await run_duly("sessions", "unblock", "a", "c")

    assert counted.stdout == "would be unblocked: 2\n"
    assert (asked.exit_code, "add --yes" in asked.stderr) == (2, True)
    assert done.stdout == "unblocked: 2\n"
    assert none.stdout == "no session is blocked\n"
    assert (several.exit_code, several.stdout) == (1, "c: unblocked\n")
    assert several.stderr.startswith("a: ")
    for words in ([], ["a", "--blocked"], ["a", "b", "--blocked-by", "x"], ["a", "--dry-run"]):
        assert (await run_duly("sessions", "unblock", *words)).exit_code == 2


async def test_sessions_are_unblocked_as_they_were_listed(client, registered, task_states):
    for key in ("a", "b"):
        for _ in range(2):
            await client.schedule(LAMBDA, session=duly.Session(key, on_failure=duly.SessionPolicy.BLOCK))
    await task_states.end_all_that_may_run(Outcome.FATAL_FAILURE)
    listed = [each async for each in client.sessions(blocked=True)]

    assert await client.unblock_sessions(listed) == [None, None]
    assert await client.unblock_sessions(iter(listed)) == [None, None]
    assert [each async for each in client.sessions(blocked=True)] == []
