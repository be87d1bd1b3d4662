"""Validation: whatever a client sends, it is either refused by a field's name or safe for the store."""

import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from duly_core.rpc.requests.new_tasks import (
    ProblemUnlessRepeatedError,
    are_canonical,
    is_canonical,
    new_task,
    parse_task_id,
    plain_tasks,
)
from duly_core.rpc.requests.problem import Problem
from duly_core.rpc.requests.times import from_duration, from_timestamp
from duly_core.tasks.task import Encoding, Scheduled, Scheduling
from duly_frontend.lambdas.service import policy_from_wire
from duly_frontend.tasks.schedule_answers import add_created, add_result
from duly_wire.enums import Priority
from duly_wire.ids import new_task_id
from duly_wire.time_conversion import to_duration, to_timestamp
from duly_wire.v1 import frontend_pb2, registry_pb2

LAMBDA = "mail.send"
LIMITS = {LAMBDA: 100}
HORIZON = timedelta(days=365)
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,127}", re.ASCII)
LAMBDA_NAME = re.compile(rf"({NAME.pattern}/)?{NAME.pattern}", re.ASCII)

texts = st.text(st.characters(codec="utf-8"), max_size=300)
numbers = st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 6)
seconds = st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**9), 10**10)
nanos = st.integers(-(2**31), 2**31 - 1) | st.integers(-1, 10**9)
durations = st.builds(Duration, seconds=seconds, nanos=nanos)
timestamps = st.builds(Timestamp, seconds=seconds, nanos=nanos)
names = texts | st.from_regex(NAME, fullmatch=True)


def asked(**fields):
    return frontend_pb2.NewTask(**{"lambda": LAMBDA, "payload": b"{}"} | fields)


def check(task):
    return new_task(task, LIMITS, HORIZON)


def outcome(call, *arguments):
    """What a call answers, or the problem it has, the other being None."""
    try:
        return call(*arguments), None
    except ProblemUnlessRepeatedError as late:
        return None, late.problem
    except Problem as problem:
        return None, problem


@st.composite
def requests(draw):
    """A NewTask of anything that the wire can carry."""
    fields = {
        "lambda": st.just(LAMBDA) | names,
        "payload": st.binary(max_size=110),
        "payload_encoding": numbers,
        "priority": numbers,
        "collection": names,
        "expires_at": timestamps,
        "idempotency_key": texts,
        "task_id": texts | st.uuids().map(str) | st.builds(lambda: str(new_task_id())),
        **draw(st.sampled_from([{}, {"delay": durations}, {"scheduled_at": timestamps}])),
    }
    chosen = draw(st.sets(st.sampled_from(sorted(fields))))
    return asked(**{name: draw(fields[name]) for name in sorted(chosen)})


# the first draw of a text reads all of Unicode, which takes seconds on a busy machine
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(requests())
def test_what_passes_is_what_the_store_takes_and_all_else_names_its_field(request_message):
    task, problem = outcome(check, request_message)
    if problem:
        assert problem.field in request_message.DESCRIPTOR.fields_by_name
        assert problem.message
        return
    assert task.lambda_name in LIMITS
    assert len(task.payload) <= LIMITS[task.lambda_name]
    assert task.collection == "" or NAME.fullmatch(task.collection)
    assert task.priority in Priority
    assert task.encoding in Encoding
    assert task.scheduled_at is None or task.delay is None
    assert task.scheduled_at is None or task.scheduled_at <= datetime.now(UTC) + HORIZON
    assert task.delay is None or timedelta() <= task.delay <= HORIZON
    assert task.idempotency_key is None or 0 < len(task.idempotency_key.encode()) <= 255
    assert "\x00" not in (task.idempotency_key or "")
    assert UUID(bytes=task.task_id).version == 7


@given(names)
@example("mail.send\n")
@example("\N{LATIN SMALL LETTER LONG S}")
@example("\N{ARABIC-INDIC DIGIT THREE}")
@example("m" * 128)
@example("shop/mail.send")
@example("shop/mail/send")
@example("s/" + "m" * 127)
def test_a_lambda_is_known_by_a_name_of_the_alphabet_alone(name):
    _, problem = outcome(new_task, asked(**{"lambda": name}), {name: 100}, HORIZON)

    assert (problem is None) == bool(LAMBDA_NAME.fullmatch(name) and len(name) <= 128)
    assert problem is None or problem.field == "lambda"


@given(st.binary(max_size=200))
def test_a_payload_passes_as_it_is_up_to_the_limit(payload):
    task, problem = outcome(check, asked(payload=payload))

    assert task is None or task.payload == payload
    assert (problem is not None) == (len(payload) > LIMITS[LAMBDA])


@given(st.uuids())
def test_an_id_reads_in_every_way_that_uuids_are_written(task_id):
    for text in (str(task_id), str(task_id).upper(), task_id.hex):
        assert parse_task_id(text) == task_id.bytes


@given(texts)
def test_text_that_is_no_id_is_a_problem_and_never_an_error(text):
    task_id, problem = outcome(parse_task_id, text)

    assert len(task_id) == 16 if problem is None else problem.field == "task_id"


@given(st.datetimes(timezones=st.just(UTC)))
def test_an_instant_goes_over_the_wire_and_back(instant):
    assert from_timestamp(to_timestamp(instant)) == instant


@given(st.timedeltas(min_value=timedelta(days=-3650000), max_value=timedelta(days=3650000)))
def test_a_duration_goes_over_the_wire_and_back(duration):
    assert from_duration(to_duration(duration)) == duration


@given(timestamps)
@example(Timestamp(seconds=-62135596800))
@example(Timestamp(seconds=-62135596801))
@example(Timestamp(seconds=253402300799, nanos=999_999_999))
@example(Timestamp(seconds=253402300800))
def test_an_instant_is_refused_exactly_outside_of_the_calendar(message):
    valid = -62135596800 <= message.seconds < 253402300800 and 0 <= message.nanos < 10**9
    try:
        instant = from_timestamp(message)
    except ValueError:
        assert not valid
    else:
        assert valid
        assert to_timestamp(instant).seconds == message.seconds


@given(durations)
def test_a_duration_is_refused_if_its_parts_contradict_each_other(message):
    contradicts = abs(message.nanos) >= 10**9 or message.seconds * message.nanos < 0
    try:
        duration = from_duration(message)
    except ValueError:
        assert contradicts or abs(message.seconds) > 86_400 * 999_999_998
    else:
        assert not contradicts
        assert abs(duration - timedelta(seconds=message.seconds)) <= timedelta(seconds=1)


@given(
    st.builds(
        registry_pb2.Lambda,
        name=names,
        owner=texts,
        version=texts,
        max_attempts=st.none() | numbers,
        max_crashes=st.none() | numbers,
        max_runtime=st.none() | durations,
        payload_limit=st.none() | numbers,
        crash_window=st.none() | durations,
        backoff=st.none()
        | st.builds(
            registry_pb2.Backoff,
            initial=st.none() | durations,
            factor=st.none() | st.floats(),
            max=st.none() | durations,
        ),
    )
)
def test_a_policy_that_passes_is_one_that_the_store_takes(declared):
    policy, problem = outcome(policy_from_wire, declared)
    if problem:
        assert problem.message
        return
    assert NAME.fullmatch(policy.name)
    assert policy.max_attempts >= 1
    assert 1 <= policy.max_crashes <= 1000
    assert timedelta() < policy.crash_window <= HORIZON
    assert 0 <= policy.payload_limit <= 1024 * 1024
    assert timedelta() < policy.max_runtime <= HORIZON
    assert timedelta() <= policy.backoff_initial <= policy.backoff_max <= HORIZON
    assert 1 <= policy.backoff_factor <= 1000
    assert "\x00" not in policy.owner + policy.version


def test_each_repeat_without_id_or_key_is_a_task_of_its_own():
    assert check(asked()).task_id != check(asked()).task_id


def test_a_problem_is_told_before_the_store_is_asked():
    with pytest.raises(Problem) as caught:
        check(asked(payload=b"x" * 101, priority=99))

    assert caught.value.field == "payload"


PLAIN = [
    {},
    {"collection": "marketing", "payload": b"", "payload_encoding": 2},
    {"fair_key": "ann"},
    {"priority": 1, "delay": to_duration(timedelta(hours=1))},
    {"scheduled_at": to_timestamp(datetime(2020, 1, 1, tzinfo=UTC)), "payload_encoding": 1},
]


def test_items_checked_together_are_what_each_is_alone():
    messages = [asked(task_id=str(new_task_id()), **fields) for fields in PLAIN]

    tasks = plain_tasks(messages, LIMITS, HORIZON)

    assert tasks == [check(message) for message in messages]


@pytest.mark.parametrize(
    "fields",
    [
        # invalid
        {"lambda": "other"},
        {"lambda": "Mail"},
        {"collection": "no name"},
        {"payload": bytes(101)},
        {"payload_encoding": 9},
        {"priority": -1},
        {"scheduled_at": to_timestamp(datetime.now(UTC) + HORIZON + timedelta(days=1))},
        {"scheduled_at": Timestamp(nanos=-1)},
        {"delay": Duration(seconds=-1)},
        {"fair_key": "x" * 129},
        {"fair_key": "a\x00b"},
        {"task_id": "x" * 36},
        {"task_id": str(UUID(int=5))},
        {"task_id": "0192d3e4-5f60-7abc-8def-0123456789ab"},
        {"task_id": str(UUID(bytes=b"\xff" * 6 + new_task_id().bytes[6:]))},
        {"task_id": str(new_task_id())[:-2] + "  "},
        {"task_id": str(new_task_id()).replace("-", "0", 1)},
        # not plain
        {"task_id": ""},
        {"task_id": new_task_id().hex},
        {"task_id": "", "idempotency_key": "k"},
        {"expires_at": to_timestamp(datetime.now(UTC) + timedelta(hours=1))},
        {"session": {"key": "s"}},
        {"resources": b"x"},
        {"attachments": b"x"},
        {"payload_encoding": 3, "payload": b"\xd0\x01\x01k.."},
        {"payload_encoding": 4},
    ],
)
def test_an_item_that_is_invalid_or_not_plain_has_all_checked_alone(fields):
    messages = [asked(task_id=str(new_task_id())), asked(**{"task_id": str(new_task_id())} | fields)]

    assert plain_tasks(messages, LIMITS, HORIZON) is None


@st.composite
def plain_requests(draw):
    """A valid NewTask without the fields that few tasks have."""
    fields = {
        "payload": st.binary(max_size=100),
        "payload_encoding": st.sampled_from([0, 1, 2]),
        "priority": st.sampled_from([0, *Priority]),
        "collection": st.from_regex(NAME, fullmatch=True),
        "fair_key": st.sampled_from(["ann", "bob", "é"]),
        **draw(
            st.sampled_from(
                [
                    {},
                    {
                        "delay": st.integers(0, 3_600).map(
                            lambda seconds: to_duration(timedelta(seconds=seconds))
                        )
                    },
                    {
                        "scheduled_at": st.integers(0, 3_600).map(
                            lambda s: to_timestamp(datetime.now(UTC) + timedelta(seconds=s))
                        )
                    },
                ]
            )
        ),
    }
    chosen = draw(st.sets(st.sampled_from(sorted(fields))))
    return asked(task_id=str(new_task_id()), **{name: draw(fields[name]) for name in sorted(chosen)})


@given(st.lists(plain_requests(), min_size=1, max_size=5))
def test_plain_items_are_the_same_together_and_alone(messages):
    assert plain_tasks(messages, LIMITS, HORIZON) == [check(message) for message in messages]


@given(st.lists(plain_requests(), max_size=2), requests())
def test_items_that_pass_together_pass_alone(messages, other):
    messages.append(other)

    tasks = plain_tasks(messages, LIMITS, HORIZON)

    assert tasks is None or tasks == [check(message) for message in messages]


def test_texts_of_ids_are_canonical_together_if_each_is():
    text = str(UUID("0192d3e4-5f60-7abc-8def-0123456789ab"))

    for other in (text, text.upper(), UUID(text).hex, f"{{{text}}}", ""):
        assert are_canonical([text, other]) == (is_canonical(text) and is_canonical(other)), other


def test_answers_that_are_written_together_are_what_each_is_alone():
    ids = [new_task_id() for _ in range(3)]
    answers = [Scheduled(Scheduling.CREATED, each.bytes, timedelta()) for each in ids]
    together, alone = frontend_pb2.ScheduleResponse(), frontend_pb2.ScheduleResponse()

    written = add_created(together, [*map(str, ids)], answers)

    assert written
    for each, answer in zip(ids, answers, strict=True):
        add_result(alone, str(each), answer)
    assert together == alone
    assert not add_created(together, [str(ids[0]).upper()], answers[:1])
    assert not add_created(together, [str(ids[0])], [answers[0]._replace(verdict=Scheduling.REPEATED)])
    assert together == alone
