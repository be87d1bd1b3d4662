import asyncio
import socket
from collections import deque
from datetime import UTC, datetime, timedelta

import grpc
import pytest
from google.protobuf.any_pb2 import Any
from google.rpc import code_pb2, error_details_pb2, status_pb2

import duly
from duly_wire.v1 import task_pb2

SECOND = timedelta(seconds=1)


async def test_a_scheduled_task_carries_what_the_caller_said(client, frontend):
    at = datetime(2030, 1, 1, tzinfo=UTC)

    receipt = await client.schedule(
        "mail.send",
        {"to": "ann"},
        priority=duly.Priority.HIGH,
        collection="marketing",
        at=at,
        expires_at=at + SECOND,
    )

    (task,) = frontend.requests[0].tasks
    assert (getattr(task, "lambda"), task.payload, task.collection) == (
        "mail.send",
        b'{"to":"ann"}',
        "marketing",
    )
    assert task.priority == task_pb2.PRIORITY_HIGH
    assert task.scheduled_at.ToDatetime(UTC) == at
    assert task.expires_at.ToDatetime(UTC) == at + SECOND
    assert receipt == duly.ScheduledTask(task.task_id, created=True)
    assert str(receipt) == task.task_id


async def test_a_callback_is_scheduled_by_its_lambdas_name(client, frontend):
    app = duly.App()

    @app.callback("mail.send")
    def send(to: str) -> None: ...

    await client.schedule(send, "ann", collection="marketing")

    (task,) = frontend.requests[0].tasks
    assert (getattr(task, "lambda"), task.payload, task.collection) == ("mail.send", b'"ann"', "marketing")


async def test_a_function_that_is_no_callback_is_not_sent(client, frontend):
    with pytest.raises(duly.UnknownLambdaError, match="is not a callback"):
        await client.schedule(lambda payload: payload, 1)

    assert not frontend.requests


async def test_calls_made_together_travel_together(client, frontend):
    receipts = await asyncio.gather(*[client.schedule("mail.send", number) for number in range(100)])

    assert len(frontend.requests) == 1
    assert [task.task_id for task in frontend.requests[0].tasks] == [str(receipt) for receipt in receipts]


async def test_calls_made_while_two_are_under_way_go_together_in_the_next(client, frontend):
    frontend.open.clear()
    first = asyncio.create_task(client.schedule("mail.send"))
    await frontend.until_arrived(1)
    second = asyncio.create_task(client.schedule("mail.send"))
    await frontend.until_arrived(2)

    others = asyncio.gather(*[client.schedule("mail.send") for _ in range(50)])
    await asyncio.sleep(0)
    frontend.open.set()
    await asyncio.gather(first, second, others)

    assert [len(request.tasks) for request in frontend.requests] == [1, 1, 50]


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED])
async def test_a_retry_is_the_same_request_with_the_same_ids(client, frontend, code):
    frontend.failures.extend([(code,), (code,)])

    receipt = await client.schedule("mail.send")

    assert len(frontend.requests) == 3
    assert frontend.requests[0] == frontend.requests[1] == frontend.requests[2]
    assert str(receipt) == frontend.requests[0].tasks[0].task_id


async def test_a_task_our_own_retry_wrote_counts_as_created(client, frontend, monkeypatch):
    found_there = frontend._schedule

    def schedule(task):
        result = found_there(task)
        result.created = False
        return result

    monkeypatch.setattr(frontend, "_schedule", schedule)

    assert (await client.schedule("mail.send")).created
    assert not (await client.schedule("mail.send", idempotency_key="k")).created


async def test_an_error_that_is_not_passing_is_not_retried(client, frontend):
    frontend.failures.append((grpc.StatusCode.FAILED_PRECONDITION,))

    with pytest.raises(duly.RequestError, match="FAILED_PRECONDITION"):
        await client.schedule("mail.send")

    assert len(frontend.requests) == 1


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, duly.UnauthenticatedError),
        (grpc.StatusCode.PERMISSION_DENIED, duly.PermissionDeniedError),
    ],
)
async def test_a_refusal_for_want_of_a_token_or_role_is_not_retried(client, frontend, code, error):
    frontend.failures.append((code,))

    with pytest.raises(error, match="as the test said"):
        await client.schedule("mail.send")

    assert len(frontend.requests) == 1


async def test_a_frontend_that_does_not_answer_in_time_is_unavailable(client, frontend):
    frontend.open.clear()

    with pytest.raises(duly.UnavailableError, match="did not answer in time") as raised:
        # it must get there first, on a busy machine too
        await client.schedule("mail.send", timeout=SECOND / 2)

    assert raised.value.task_id == frontend.requests[0].tasks[0].task_id


async def test_a_frontend_that_cancels_calls_is_said_to_have_too_many(client, frontend):
    frontend.failures.extend([(grpc.StatusCode.CANCELLED,)] * 100)

    with pytest.raises(duly.UnavailableError, match="cannot serve now: it has too many calls, or stops"):
        await client.schedule("mail.send", timeout=SECOND / 2)

    assert len(frontend.requests) > 1


async def test_a_task_of_which_the_outcome_is_unknown_is_named(client, frontend):
    frontend.failures.extend([(grpc.StatusCode.UNAVAILABLE,)] * 100)

    errors = await asyncio.gather(
        *(
            client.schedule("mail.send", timeout=SECOND / 2, **key)
            for key in ({}, {}, {"idempotency_key": "k"})
        ),
        return_exceptions=True,
    )

    assert {type(error) for error in errors} == {duly.UnavailableError}
    sent = [[task.task_id for task in request.tasks] for request in frontend.requests]
    assert [error.task_id for error in errors] in sent
    assert errors[0].task_id != errors[1].task_id
    assert errors[2].task_id == ""


async def test_a_patient_caller_in_a_batch_outlasts_an_impatient_one(client, frontend):
    frontend.open.clear()
    impatient = asyncio.create_task(client.schedule("mail.send", timeout=SECOND / 10))
    patient = asyncio.create_task(client.schedule("mail.send"))
    with pytest.raises(duly.UnavailableError):
        await impatient

    frontend.open.set()

    assert (await patient).created


async def test_no_frontend_at_all_is_an_error_that_says_where_and_what_to_do():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"

        async with duly.AsyncClient(address) as client:
            with pytest.raises(
                duly.UnavailableError, match=rf"no Duly Frontend answers at {address}.*`duly up`"
            ):
                await client.schedule("mail.send", timeout=SECOND)  # for a busy machine to find it refused


async def test_nobody_waits_long_where_nothing_listens_if_they_said_so():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"

        async with duly.AsyncClient(address, unreachable_after=SECOND / 10) as client, asyncio.timeout(5):
            with pytest.raises(duly.UnavailableError, match="no Duly Frontend answers"):
                await client.wait("t")


async def test_a_frontend_that_answered_before_is_waited_for_all_the_same(frontend, make_task):
    frontend.tasks["t"] = make_task("t")

    async with duly.AsyncClient(frontend.address, unreachable_after=timedelta(0)) as client:
        await client.get("t")
        frontend.failures.append((grpc.StatusCode.UNAVAILABLE,))

        assert (await client.get("t")).task_id == "t"


async def test_a_frontend_without_its_store_is_told_from_none(client, frontend):
    status = status_pb2.Status(code=code_pb2.UNAVAILABLE, message="as the test said")
    frontend.failures.extend(
        [(grpc.StatusCode.UNAVAILABLE, ("grpc-status-details-bin", status.SerializeToString()))] * 100
    )

    with pytest.raises(duly.UnavailableError, match="cannot serve now: as the test said"):
        await client.schedule("mail.send", timeout=SECOND)


async def test_the_address_comes_from_the_environment_if_none_is_given(monkeypatch):
    monkeypatch.setenv("DULY_ADDRESS", "frontend.internal:7401")

    assert duly.AsyncClient().address == "frontend.internal:7401"
    assert duly.AsyncClient("other:1").address == "other:1"


@pytest.mark.parametrize(
    "address",
    [
        *(
            "localhost:7401",
            "[::1]:7401",
            "unix:/run/duly.sock",
            "unix:///run/duly.sock",
            "unix-abstract:duly",
        ),
        *(
            "dns:///frontend",
            "dns://8.8.8.8/frontend:7401",
            "ipv4:10.0.0.1:7401,10.0.0.2:7401",
            "ipv6:[::1]:7401",
        ),
    ],
)
def test_an_address_is_any_that_grpc_knows(address):
    assert duly.AsyncClient(address).address == address


@pytest.mark.parametrize(
    "address",
    ["localhost", "http://127.0.0.1:7401", "7401", ":7401", "::1:7401", "host:0", "host:65536", 7401],
)
def test_what_is_no_address_is_refused_at_once_with_what_to_write(address):
    with pytest.raises(
        duly.AddressError, match=r"is not an address: write HOST:PORT, such as 127\.0\.0\.1:7401"
    ):
        duly.Client(address)


def test_an_address_in_the_environment_that_is_none_is_told_to_be_from_there(monkeypatch):
    monkeypatch.setenv("DULY_ADDRESS", "localhost")

    with pytest.raises(duly.AddressError, match=r"^'localhost' \(in DULY_ADDRESS\) is not an address"):
        duly.Client()


async def test_a_priority_or_status_in_quotes_is_refused_with_how_it_is_written(client, frontend):
    with pytest.raises(duly.InvalidTaskError, match=r"use duly\.Priority\.HIGH$") as named:
        await client.schedule("mail.send", priority="high")
    with pytest.raises(
        duly.InvalidTaskError, match=r"use duly\.Priority\.URGENT or .* or duly\.Priority\.LOW$"
    ):
        await client.schedule("mail.send", priority="soon")
    with pytest.raises(duly.InvalidTaskError, match=r"use duly\.TaskStatus\.SUCCESS$"):
        await anext(client.list(statuses=["success"]))
    with pytest.raises(duly.InvalidTaskError, match=r"use duly\.FailureKind\.CRASH$"):
        await anext(client.dead_letters(failure_kinds=["crash"]))

    assert named.value.field == "priority"
    assert not frontend.requests


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"session": 5}, "session must be a key, which is a text, or a duly.Session, not int"),
        ({"collection": 5}, "collection must be a text, not int"),
        ({"idempotency_key": 5}, "idempotency_key must be a text, not int"),
        ({"priority": 1}, r"priority must not be 1: use duly.Priority.URGENT$"),
        ({"priority": True}, r"priority must not be True: use duly.Priority.URGENT or"),
        ({"sesion": "a"}, "no argument sesion=: do you mean session="),
        ({"wholly_other": 1}, "no argument wholly_other=: there are at, attributes, collection, "),
    ],
)
async def test_an_argument_that_cannot_be_is_an_error_that_names_it(client, frontend, options, message):
    with pytest.raises(duly.InvalidTaskError, match=message):
        await client.schedule("mail.send", **options)

    assert not frontend.requests


async def test_many_tasks_may_name_callbacks_and_list_their_resources(client, frontend):
    app = duly.App()

    @app.callback("mail.send")
    def send(_payload: dict) -> None: ...

    await client.schedule_many([duly.NewTask(send, {"n": 1}, resources=["gpu"]), duly.NewTask("mail.read")])

    assert [getattr(task, "lambda") for task in frontend.requests[0].tasks] == ["mail.send", "mail.read"]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (task_pb2.ERROR_CODE_UNKNOWN_LAMBDA, duly.UnknownLambdaError),
        (task_pb2.ERROR_CODE_PAYLOAD_TOO_LARGE, duly.PayloadTooLargeError),
        (task_pb2.ERROR_CODE_KEY_CONFLICT, duly.KeyConflictError),
        (task_pb2.ERROR_CODE_INVALID_ARGUMENT, duly.InvalidTaskError),
        (99, duly.RequestError),
    ],
)
async def test_an_item_error_is_raised_to_its_own_caller_alone(client, frontend, code, error):
    frontend.item_errors["bad"] = task_pb2.ItemError(code=code, field="lambda", message="no good")

    good, bad = await asyncio.gather(client.schedule("good"), client.schedule("bad"), return_exceptions=True)

    assert good.created
    assert type(bad) is error
    assert "no good" in str(bad)


async def test_a_refused_request_names_the_field_at_fault(client, frontend):
    bad = error_details_pb2.BadRequest(
        field_violations=[{"field": "tasks[0].lambda", "description": "empty"}]
    )
    detail = Any()
    detail.Pack(bad)
    status = status_pb2.Status(code=code_pb2.INVALID_ARGUMENT, message="as the test said", details=[detail])
    trailer = ("grpc-status-details-bin", status.SerializeToString())
    frontend.failures.append((grpc.StatusCode.INVALID_ARGUMENT, trailer))

    with pytest.raises(duly.InvalidTaskError) as raised:
        await client.schedule("mail.send")

    assert raised.value.field == "tasks[0].lambda"
    assert str(raised.value) == "tasks[0].lambda: as the test said"


async def test_a_field_that_the_refusal_names_itself_is_named_once(client, frontend):
    detail = Any()
    detail.Pack(error_details_pb2.BadRequest(field_violations=[{"field": "as the", "description": "it"}]))
    status = status_pb2.Status(code=code_pb2.INVALID_ARGUMENT, message="as the: test said", details=[detail])
    frontend.failures.append(
        (grpc.StatusCode.INVALID_ARGUMENT, ("grpc-status-details-bin", status.SerializeToString()))
    )
    frontend.words = status.message

    with pytest.raises(duly.InvalidTaskError) as raised:
        await client.schedule("mail.send")

    assert str(raised.value) == "as the: test said"


async def test_many_tasks_go_in_calls_of_a_thousand_and_come_back_in_order(client, frontend):
    receipts = await client.schedule_many(duly.NewTask("mail.send", number) for number in range(2500))

    assert sorted(len(request.tasks) for request in frontend.requests) == [500, 1000, 1000]
    ids = {task.task_id: task.payload for request in frontend.requests for task in request.tasks}
    assert [ids[str(receipt)] for receipt in receipts] == [b"%d" % number for number in range(2500)]


async def test_many_large_tasks_go_in_calls_of_about_a_mebibyte(client, frontend):
    await client.schedule_many(duly.NewTask("mail.send", bytes(300_000)) for _ in range(7))

    assert sorted(len(request.tasks) for request in frontend.requests) == [1, 3, 3]


async def test_the_tasks_that_failed_among_many_are_told_after_all_were_tried(client, frontend):
    frontend.item_errors["bad"] = task_pb2.ItemError(
        code=task_pb2.ERROR_CODE_UNKNOWN_LAMBDA, message="unknown"
    )

    with pytest.raises(duly.ScheduleManyError, match="2 of 3") as raised:
        await client.schedule_many([duly.NewTask("bad"), duly.NewTask("good", {1j}), duly.NewTask("good")])

    first, second, third = raised.value.results
    assert isinstance(first, duly.UnknownLambdaError)
    assert isinstance(second, duly.EncodingError)
    assert third.created


async def test_of_many_tasks_that_may_have_been_written_each_error_has_the_id(client, frontend):
    frontend.failures.extend([(grpc.StatusCode.UNAVAILABLE,)] * 100)

    with pytest.raises(duly.ScheduleManyError) as raised:
        await client.schedule_many(
            [
                duly.NewTask("mail.send"),
                duly.NewTask("mail.send", idempotency_key="a"),
                duly.NewTask("mail.send"),
            ],
            timeout=timedelta(seconds=0.3),
        )

    assert all(isinstance(each, duly.UnavailableError) for each in raised.value.results)
    assert [each.task_id for each in raised.value.results] == [
        task.task_id for task in frontend.requests[0].tasks
    ]
    assert raised.value.results[1].task_id == ""


async def test_scheduling_nothing_asks_nobody(client, frontend):
    assert await client.schedule_many([]) == []
    assert frontend.requests == []


async def test_a_task_is_read_by_its_receipt_its_id_or_itself(client, frontend, make_task):
    receipt = await client.schedule("mail.send")
    frontend.tasks[str(receipt)] = make_task(
        str(receipt), result=b'{"ok":true}', payload=b"\x00", payload_encoding=2
    )

    task = await client.get(receipt)

    assert task.status is duly.TaskStatus.SUCCESS
    assert task.status.is_final
    assert (task.payload, task.result, task.failure, task.finished_at) == (b"\x00", {"ok": True}, None, None)
    assert await client.get(task) == await client.get(task.task_id) == task


async def test_a_task_there_is_none_of_is_an_error_alone_and_none_among_many(client, frontend, make_task):
    frontend.tasks["here"] = make_task("here")

    with pytest.raises(duly.TaskNotFoundError):
        await client.get("gone")

    here, gone = await client.get_many(["here", "gone"])
    assert here.task_id == "here"
    assert gone is None


async def test_an_answer_too_large_for_one_message_is_asked_for_in_halves(client, frontend, make_task):
    frontend.tasks = {
        str(n): make_task(str(n), payload=bytes(900_000), payload_encoding=2) for n in range(12)
    }

    tasks = await client.get_many([str(n) for n in range(12)])

    assert [task.task_id for task in tasks] == [str(n) for n in range(12)]


async def test_waiting_asks_again_until_the_task_is_final(client, frontend, make_task):
    frontend.tasks["t"] = deque(
        [make_task("t", task_pb2.TASK_STATUS_PROCESSING), make_task("t", result=b"5")]
    )

    assert (await client.wait("t", 10 * SECOND)).result == 5
    assert len(frontend.requests) == 2


async def test_waiting_for_many_asks_again_only_for_those_that_go_on(client, frontend, make_task):
    frontend.tasks["quick"] = make_task("quick")
    frontend.tasks["slow"] = deque([make_task("slow", task_pb2.TASK_STATUS_NEW), make_task("slow")])

    tasks = await client.wait_many(["slow", "quick", "slow"])

    assert [task.task_id for task in tasks] == ["slow", "quick", "slow"]
    basic, full = task_pb2.TASK_VIEW_BASIC, task_pb2.TASK_VIEW_FULL
    assert [(list(request.task_ids), request.view) for request in frontend.requests] == [
        (["slow", "quick"], basic),
        (["slow"], basic),
        (["slow", "quick"], full),
    ]


async def test_a_task_that_is_asked_for_twice_is_sent_once(client, frontend, make_task):
    frontend.tasks["here"] = make_task("here")

    first, second = await client.get_many(["here", "here"])

    assert first == second
    assert [list(request.task_ids) for request in frontend.requests] == [["here"]]


async def test_waiting_for_a_task_there_is_none_of_names_it(client, frontend, make_task):
    frontend.tasks["here"] = make_task("here")

    with pytest.raises(duly.TaskNotFoundError, match="there is no task gone"):
        await client.wait_many(["here", "gone"])


async def test_an_id_may_be_written_in_capitals(client, frontend, make_task):
    frontend.tasks["ABC"] = deque([make_task("abc", task_pb2.TASK_STATUS_NEW), make_task("abc")])

    assert (await client.wait("ABC")).task_id == "abc"


async def test_waiting_too_long_tells_how_the_task_stood(client, frontend, make_task):
    frontend.tasks["t"] = make_task("t", task_pb2.TASK_STATUS_ENQUEUED)

    with pytest.raises(duly.WaitTimeoutError, match="ENQUEUED") as raised:
        await client.wait("t", timedelta(0))

    assert raised.value.tasks[0].status is duly.TaskStatus.ENQUEUED


async def test_a_failed_task_is_returned_or_raised_as_asked(client, frontend, make_task):
    failure = task_pb2.Failure(kind=task_pb2.FAILURE_KIND_EXPIRED, message="too late")
    frontend.tasks["t"] = make_task("t", task_pb2.TASK_STATUS_FATAL_FAILURE, last_failure=failure)

    assert (await client.wait("t")).failure == duly.Failure(duly.FailureKind.EXPIRED, "too late", None)
    with pytest.raises(duly.TaskFailedError, match="FATAL_FAILURE: EXPIRED, too late"):
        await client.wait("t", raise_on_failure=True)


async def test_cancelling_tells_the_status_or_why_not(client):
    assert await client.cancel("t") is duly.TaskStatus.CANCELLED
    with pytest.raises(duly.TaskFinalError):
        await client.cancel("ended")

    status, error = await client.cancel_many(["t", "ended"])
    assert status is duly.TaskStatus.CANCELLED
    assert isinstance(error, duly.TaskFinalError)


async def test_a_listing_goes_through_all_its_pages(client, frontend, make_task):
    frontend.tasks = {str(n): make_task(str(n)) for n in range(5)}

    listed = [task.task_id async for task in client.list(statuses=[duly.TaskStatus.SUCCESS], page_size=2)]

    assert listed == ["0", "1", "2", "3", "4"]
    assert [request.page_token for request in frontend.requests] == ["", "2", "4"]
    assert all(list(request.statuses) == [task_pb2.TASK_STATUS_SUCCESS] for request in frontend.requests)


async def test_lambdas_are_listed_with_their_policies(client):
    (listed,) = await client.lambdas()

    assert (listed.name, listed.owner, listed.max_attempts) == ("mail.send", "team-mail", 10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"at": datetime(2030, 1, 1)}, "no time zone"),  # noqa: DTZ001 (the point)
        ({"at": "tomorrow"}, "must be a datetime, not str"),
        ({"expires_at": datetime(2030, 1, 1)}, "no time zone"),  # noqa: DTZ001 (the point)
        ({"delay": 5}, "must be a timedelta, not int"),
        ({"delay": SECOND, "at": datetime(2030, 1, 1, tzinfo=UTC)}, "not both"),
        ({"idempotency_key": ""}, "must not be empty"),
    ],
)
async def test_a_time_that_is_none_is_refused_before_anything_is_sent(client, frontend, options, message):
    with pytest.raises(duly.InvalidTaskError, match=message):
        await client.schedule("mail.send", **options)

    assert frontend.requests == []


async def test_an_instant_without_a_time_zone_is_refused_in_each_call_that_takes_one(client):
    instant = datetime(2030, 1, 1)  # noqa: DTZ001 (the point)

    with pytest.raises(duly.InvalidTaskError, match="expires_at has no time zone"):
        await client.put_gate("quiet", duly.GateKind.PAUSE, "mail.send", expires_at=instant)
    with pytest.raises(duly.InvalidTaskError, match="since has no time zone"):
        await anext(client.audit_events(since=instant))


async def test_a_payload_no_lambda_may_take_does_not_sink_its_batch(client, frontend):
    large, small = await asyncio.gather(
        client.schedule("mail.send", bytes(2**20 + 1)), client.schedule("mail.send"), return_exceptions=True
    )

    assert isinstance(large, duly.PayloadTooLargeError)
    assert small.created


async def test_a_timeout_in_bare_numbers_is_refused(client):
    with pytest.raises(TypeError, match="must be a timedelta"):
        await client.schedule("mail.send", timeout=5)


async def test_closing_waits_for_what_is_under_way_and_refuses_what_comes_after(frontend):
    client = duly.AsyncClient(frontend.address)
    await client.open()
    under_way = asyncio.create_task(client.schedule("mail.send"))
    await frontend.until_arrived(1)

    await client.close()

    assert (await under_way).created
    with pytest.raises(duly.ClosedError):
        await client.schedule("mail.send")
    await client.close()


async def test_closing_ends_a_wait_with_an_error_and_not_with_a_cancellation(frontend):
    client = duly.AsyncClient(frontend.address)
    await client.open()
    frontend.open.clear()
    waiting = asyncio.create_task(client.wait("t"))
    await frontend.until_arrived(1)

    await client.close()

    with pytest.raises(duly.ClosedError):
        await waiting


async def test_who_waits_for_several_tasks_for_ever_outlasts_a_restart_as_who_waits_for_one(monkeypatch):
    patience = []

    async def call(_caller, _method, _request, timeout, **_):
        patience.append(timeout)
        raise duly.UnavailableError("away")

    monkeypatch.setattr("duly.transport.caller.Caller.call", call)
    async with duly.AsyncClient("127.0.0.1:1") as client:
        for ids in (["a"], ["a", "b"]):
            with pytest.raises(duly.UnavailableError):
                await client.wait_many(ids)

    assert patience[0] == patience[1] > 30 * SECOND
