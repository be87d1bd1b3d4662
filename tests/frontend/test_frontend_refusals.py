"""What the Frontend refuses: with which status or error, which field, which words; and nothing is written."""

from datetime import timedelta
from uuid import UUID, uuid4

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from duly_core.rpc.settings import RpcSettings
from duly_frontend.tasks import completion_watcher
from duly_wire.ids import new_task_id
from duly_wire.v1 import frontend_pb2, task_pb2
from tests.fixtures.database import count
from tests.fixtures.services import refusal, serve_frontend
from tests.fixtures.task_states import LAMBDA

INVALID = task_pb2.ERROR_CODE_INVALID_ARGUMENT
LARGEST = 1024 * 1024
FAR = timedelta(days=366)
NEVER = Timestamp(seconds=253402300800)  # the year 10000
HUGE = 2**63 - 1
PLACEHOLDER = "@@"


def asked(**fields):
    return frontend_pb2.NewTask(**{"lambda": LAMBDA, "payload": b"{}"} | fields)


def far_ahead():
    moment = Timestamp()
    moment.GetCurrentTime()
    return Timestamp(seconds=moment.seconds + int(FAR.total_seconds()))


def id_of(days_from_now, version=7, variant=0b10):
    value = new_task_id().int + (round(days_from_now * 86_400_000) << 80)
    value = value & ~(0xF << 76) & ~(0b11 << 62) | version << 76 | variant << 62
    return str(UUID(int=value))


BAD_ITEMS = {
    "no lambda": ({"lambda": ""}, "lambda", "1 to 128"),
    "upper case": ({"lambda": "Mail.send"}, "lambda", "a-z"),
    "space": ({"lambda": "mail send"}, "lambda", "a-z"),
    "the namespace of lambdas without one": ({"lambda": "default/send"}, "lambda", "may be called 'default'"),
    "slashes": ({"lambda": "mail/send/now"}, "lambda", "a-z"),
    "leading dot": ({"lambda": ".send"}, "lambda", "beginning with"),
    "trailing newline": ({"lambda": "mail.send\n"}, "lambda", "a-z"),
    "not ASCII": ({"lambda": "mäil"}, "lambda", "a-z"),
    "NUL in a lambda": ({"lambda": "mail\x00send"}, "lambda", "a-z"),
    "too long a lambda": ({"lambda": "m" * 129}, "lambda", "128"),
    "upper case collection": ({"collection": "Spring"}, "collection", "a-z"),
    "NUL in a collection": ({"collection": "spring\x00"}, "collection", "a-z"),
    "too long a collection": ({"collection": "s" * 129}, "collection", "128"),
    "unknown encoding": ({"payload_encoding": 99}, "payload_encoding", "99 is not an encoding"),
    "negative encoding": ({"payload_encoding": -1}, "payload_encoding", "-1 is not an encoding"),
    "unknown priority": ({"priority": 5}, "priority", "5 is not a priority"),
    "negative priority": ({"priority": -1}, "priority", "-1 is not a priority"),
    "beyond the horizon": (
        {"scheduled_at": far_ahead()},
        "scheduled_at",
        "at most 365d ahead (frontend.horizon)",
    ),
    "the year 10000": ({"scheduled_at": NEVER}, "scheduled_at", "year"),
    "the end of time": ({"scheduled_at": Timestamp(seconds=HUGE)}, "scheduled_at", "year"),
    "before all time": ({"scheduled_at": Timestamp(seconds=-HUGE)}, "scheduled_at", "year"),
    "negative nanos": ({"scheduled_at": Timestamp(nanos=-1)}, "scheduled_at", "nanos"),
    "too many nanos": ({"scheduled_at": Timestamp(nanos=10**9)}, "scheduled_at", "nanos"),
    "delay beyond the horizon": (
        {"delay": Duration(seconds=366 * 86400)},
        "delay",
        "at most 365d ahead (frontend.horizon)",
    ),
    "endless delay": ({"delay": Duration(seconds=HUGE)}, "delay", ""),
    "contradictory delay": ({"delay": Duration(seconds=1, nanos=-1)}, "delay", "contradict"),
    "delay with too many nanos": ({"delay": Duration(nanos=10**9)}, "delay", "contradict"),
    "expiry in the year 10000": ({"expires_at": NEVER}, "expires_at", "year"),
    "expiry with negative nanos": ({"expires_at": Timestamp(nanos=-1)}, "expires_at", "nanos"),
    "too long a key": ({"idempotency_key": "k" * 256}, "idempotency_key", "255 bytes"),
    "key of too many bytes": ({"idempotency_key": "é" * 128}, "idempotency_key", "255 bytes"),
    "NUL in a key": ({"idempotency_key": "k\x00"}, "idempotency_key", "NUL"),
    "a tick's key": ({"idempotency_key": "time-table:a:b"}, "idempotency_key", "time-table:"),
    "id and key": ({"task_id": id_of(0), "idempotency_key": "k"}, "task_id", "either"),
    "an invalid id": ({"task_id": "nonsense"}, "task_id", "UUID"),
    "id with NUL": ({"task_id": id_of(0)[:-1] + "\x00"}, "task_id", "UUID"),
    "id of version 4": ({"task_id": str(uuid4())}, "task_id", "version 7"),
    "id of another variant": ({"task_id": id_of(0, variant=0b11)}, "task_id", "version 7"),
    "negative delay": ({"delay": Duration(seconds=-5)}, "delay", "must not be negative"),
    "expiry in the past": ({"expires_at": Timestamp(seconds=1_700_000_000)}, "expires_at", "in the past"),
    "id from tomorrow": ({"task_id": id_of(1.1)}, "task_id", "a day from now"),
    "id from yesterday": ({"task_id": id_of(-1.1)}, "task_id", "a day from now"),
}


@pytest.fixture
def written(dsn):
    """How many rows the whole task path holds."""
    return lambda: [count(dsn, table) for table in ("task", "task_assoc", "idempotency_key")]


async def schedule(frontend, *tasks):
    return list((await frontend.stub.Schedule(frontend_pb2.ScheduleRequest(tasks=tasks))).results)


async def test_each_bad_item_is_refused_by_its_field_and_the_good_ones_are_written(
    frontend, task_states, written
):
    bad = [asked(**fields) for fields, _, _ in BAD_ITEMS.values()]

    results = await schedule(frontend, asked(), *bad, asked())

    for name, result in zip(BAD_ITEMS, results[1:-1], strict=True):
        _, field, words = BAD_ITEMS[name]
        assert (name, result.error.code, result.error.field) == (name, INVALID, field)
        assert words in result.error.message, name
        assert (name, result.task_id, result.created) == (name, "", False)
    assert [result.created for result in (results[0], results[-1])] == [True, True]
    assert written() == [2, 2, 0]


async def test_times_and_keys_at_their_very_limits_are_taken(frontend, task_states):
    limits = [
        asked(delay=Duration(seconds=365 * 86400)),
        asked(expires_at=Timestamp(seconds=253402300799, nanos=999_999_999)),
        asked(idempotency_key="é" * 127 + "k"),
        asked(collection="s" * 128),
        asked(task_id=id_of(0.9)),
        asked(task_id=id_of(-0.9)),
        asked(task_id=id_of(0).upper()),
    ]

    assert [result.error.message for result in await schedule(frontend, *limits)] == [""] * len(limits)


async def test_an_unknown_lambda_says_how_to_make_it_known(frontend, task_states, written):
    (result,) = await schedule(frontend, asked(**{"lambda": "nobody.knows"}))

    assert (result.error.code, result.error.field) == (task_pb2.ERROR_CODE_UNKNOWN_LAMBDA, "lambda")
    assert "'nobody.knows'" in result.error.message
    assert "start a worker that declares it" in result.error.message
    assert written() == [0, 0, 0]


@pytest.mark.parametrize("limit", [0, 10, LARGEST])
async def test_a_payload_may_be_as_large_as_its_lambda_takes_and_no_larger(
    frontend, task_states, written, limit
):
    await task_states.register(payload_limit=limit)

    fits, exceeds = await schedule(frontend, asked(payload=b"x" * limit), asked(payload=b"x" * (limit + 1)))

    assert fits.created
    assert (exceeds.error.code, exceeds.error.field) == (task_pb2.ERROR_CODE_PAYLOAD_TOO_LARGE, "payload")
    assert f"{limit + 1:,} bytes exceed the {limit:,} that {LAMBDA} takes" in exceeds.error.message
    assert written() == [1, 1, 0]


@pytest.mark.parametrize("by", ["task_id", "idempotency_key"])
async def test_a_key_of_another_task_is_a_conflict_that_names_its_holder(frontend, task_states, written, by):
    key = {by: str(new_task_id())}
    (first,) = await schedule(frontend, asked(**key))

    (result,) = await schedule(frontend, asked(payload=b"other", **key))

    assert (result.error.code, result.error.field) == (task_pb2.ERROR_CODE_KEY_CONFLICT, "idempotency_key")
    assert (result.task_id, result.created) == (first.task_id, False)
    assert written()[0] == 1


def whole_call_refusals():
    ids = [str(new_task_id()) for _ in range(4)]
    tasks = [asked() for _ in range(4)]
    contradictory = Duration(seconds=1, nanos=-1)
    return {
        "no tasks": ("Schedule", frontend_pb2.ScheduleRequest(), "tasks", "1 to 3"),
        "too many tasks": ("Schedule", frontend_pb2.ScheduleRequest(tasks=tasks), "tasks", "not 4"),
        "no ids to get": ("GetTask", frontend_pb2.GetTaskRequest(), "task_ids", "1 to 3"),
        "too many to get": ("GetTask", frontend_pb2.GetTaskRequest(task_ids=ids), "task_ids", "not 4"),
        "no ids to cancel": ("CancelTask", frontend_pb2.CancelTaskRequest(), "task_ids", "1 to 3"),
        "too many to cancel": (
            "CancelTask",
            frontend_pb2.CancelTaskRequest(task_ids=ids),
            "task_ids",
            "not 4",
        ),
        "nothing to wait for": ("WaitTask", frontend_pb2.WaitTaskRequest(), "task_ids", "1 to 3"),
        "too much to wait for": ("WaitTask", frontend_pb2.WaitTaskRequest(task_ids=ids), "task_ids", "not 4"),
        "too long a wait": (
            "WaitTask",
            frontend_pb2.WaitTaskRequest(task_ids=ids[:1], timeout=Duration(seconds=61)),
            "timeout",
            "from 0 to 1m",
        ),
        "negative wait": (
            "WaitTask",
            frontend_pb2.WaitTaskRequest(task_ids=ids[:1], timeout=Duration(seconds=-1)),
            "timeout",
            "from 0",
        ),
        "contradictory wait": (
            "WaitTask",
            frontend_pb2.WaitTaskRequest(task_ids=ids[:1], timeout=contradictory),
            "timeout",
            "contradict",
        ),
        "page too large": (
            "ListTasks",
            frontend_pb2.ListTasksRequest(page_size=1001),
            "page_size",
            "1 to 1,000",
        ),
        "page below none": (
            "ListTasks",
            frontend_pb2.ListTasksRequest(page_size=-1),
            "page_size",
            "1 to 1,000",
        ),
        "unknown status": ("ListTasks", frontend_pb2.ListTasksRequest(statuses=[99]), "statuses", "99"),
        "no status": ("ListTasks", frontend_pb2.ListTasksRequest(statuses=[0]), "statuses", "0"),
        "unknown priority": ("ListTasks", frontend_pb2.ListTasksRequest(priorities=[9]), "priorities", "9"),
        "NUL lambda": ("ListTasks", frontend_pb2.ListTasksRequest(**{"lambda": "\x00"}), "lambda", "NUL"),
        "NUL collection": (
            "ListTasks",
            frontend_pb2.ListTasksRequest(collection="\x00"),
            "collection",
            "NUL",
        ),
        "too many statuses": (
            "ListTasks",
            frontend_pb2.ListTasksRequest(statuses=[1] * 101),
            "statuses",
            "at most 100",
        ),
        "too many priorities": (
            "ListTasks",
            frontend_pb2.ListTasksRequest(priorities=[1] * 101),
            "priorities",
            "at most 100",
        ),
        "too many failure kinds": (
            "RedriveTasks",
            frontend_pb2.RedriveTasksRequest(failure_kinds=[1] * 101),
            "failure_kinds",
            "at most 100",
        ),
        "too long a collection to filter by": (
            "ListTasks",
            frontend_pb2.ListTasksRequest(collection="s" * 129),
            "collection",
            "at most 128",
        ),
        "garbage token": (
            "ListTasks",
            frontend_pb2.ListTasksRequest(page_token="ü*"),
            "page_token",
            "not a page",
        ),
    }


async def test_calls_that_are_unusable_as_a_whole_name_the_field_in_their_details(
    task_states, written, monkeypatch
):
    monkeypatch.setattr(completion_watcher, "MOST_OF_ONE", 3)
    async with serve_frontend(task_states.store, max_tasks_per_call=3, max_waited_per_call=3) as frontend:
        for name, (method, request, field, words) in whole_call_refusals().items():
            refused = await refusal(getattr(frontend.stub, method)(request))

            assert (name, refused.code, refused.field) == (name, grpc.StatusCode.INVALID_ARGUMENT, field)
            assert words in refused.message, name
    assert written() == [0, 0, 0]


async def test_a_page_token_holds_for_the_filters_it_was_made_for(frontend, task_states):
    await schedule(frontend, *[asked() for _ in range(3)])
    page = await frontend.stub.ListTasks(frontend_pb2.ListTasksRequest(page_size=1))

    other = frontend_pb2.ListTasksRequest(page_token=page.next_page_token, priorities=[1])
    refused = await refusal(frontend.stub.ListTasks(other))

    assert (refused.code, refused.field) == (grpc.StatusCode.INVALID_ARGUMENT, "page_token")
    assert "other filters" in refused.message


async def test_a_message_beyond_the_limit_is_refused_before_it_is_read(frontend, task_states, written):
    size = RpcSettings().max_message_bytes
    request = frontend_pb2.ScheduleRequest(tasks=[asked(payload=b"x" * (size // 4)) for _ in range(5)])

    refused = await refusal(
        frontend.channel.unary_unary("/duly.v1.FrontendService/Schedule")(request.SerializeToString())
    )

    assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert written() == [0, 0, 0]
    assert (await schedule(frontend, asked()))[0].created


async def test_text_that_is_not_utf_8_is_refused(frontend, task_states, written):
    send = frontend.channel.unary_unary("/duly.v1.FrontendService/Schedule")
    for field in ("lambda", "collection", "idempotency_key", "task_id"):
        request = frontend_pb2.ScheduleRequest(tasks=[asked(**{field: PLACEHOLDER})])

        refused = await refusal(send(request.SerializeToString().replace(PLACEHOLDER.encode(), b"\xff\xfe")))

        assert written() == [0, 0, 0]
        assert (refused.code, refused.field) == (grpc.StatusCode.INVALID_ARGUMENT, f"tasks.{field}")


async def test_bytes_that_are_no_request_are_refused(frontend):
    refused = await refusal(frontend.channel.unary_unary("/duly.v1.FrontendService/Schedule")(b"\xff\xff"))

    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_method_that_does_not_exist_is_unimplemented(frontend):
    refused = await refusal(frontend.channel.unary_unary("/duly.v1.FrontendService/Forget")(b""))

    assert refused.code is grpc.StatusCode.UNIMPLEMENTED
