"""What a malformed request is told, and that no request costs much time."""

import time

import pytest

from duly_core.errors import DulyError, InvalidRequestError
from duly_core.graphs.rules import MOST_EDGES, MOST_NODES
from duly_core.live_settings.definitions import field_of
from duly_core.rpc.requests.decode_errors import explain
from duly_core.rpc.requests.field_count import check_field_count
from duly_core.rpc.requests.new_tasks import parse_task_id
from duly_core.rpc.requests.problem import Problem
from duly_frontend.lists import filters, page_token
from duly_wire.v1 import controller_pb2, frontend_pb2, graphs_pb2, hsc_pb2, registry_pb2

LARGEST = 8 * 1024 * 1024
DEADLINE = 0.2
"""Seconds of a processor, which others use, too: many times what it takes."""


def delimited(number: int, value: bytes) -> bytes:
    """A field with a length below 2 MiB."""
    size = len(value)
    length = bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + value


SCHEDULE, GET = frontend_pb2.ScheduleRequest.DESCRIPTOR, frontend_pb2.GetTaskRequest.DESCRIPTOR
EXPENSIVE = {
    "zeros": (bytes(LARGEST), SCHEDULE),
    "0xff": (b"\xff" * LARGEST, SCHEDULE),
    "fields of number 0 with a value": (b"\x02\x00" * (LARGEST // 2), SCHEDULE),
    "empty unknown fields": (b"\x7a\x00" * (LARGEST // 2), SCHEDULE),
    "numbers of unknown fields": (b"\x78\x01" * (LARGEST // 2), SCHEDULE),
    "tags of ten bytes": (b"\x82\x80\x80\x80\x80\x80\x80\x80\x80\x01\x00" * (LARGEST // 11), SCHEDULE),
    "empty tasks": (b"\x0a\x00" * (LARGEST // 2), SCHEDULE),
    "empty texts": (b"\x0a\x00" * (LARGEST // 2), GET),
    "texts of one character": (b"\x0a\x01a" * (LARGEST // 3), GET),
    "a long text": (b"\x0a\xff\xff\xff\x03" + "\u00e4".encode() * (LARGEST // 2), GET),
    "tasks in tasks": (
        delimited(1, delimited(2, delimited(1, bytes(1_000_000)))),
        hsc_pb2.WorkRequest.DESCRIPTOR,
    ),
    "lambdas": (
        delimited(1, b"\x0a\x01a\x12\x00" * 100) * 16_000,
        registry_pb2.RegisterLambdasRequest.DESCRIPTOR,
    ),
    "executors": (b"\x0a\x00" * (LARGEST // 2), controller_pb2.AttachExecutorRequest.DESCRIPTOR),
}


@pytest.mark.parametrize("name", EXPENSIVE)
def test_the_look_at_the_largest_request_takes_no_time(name):
    data, message = EXPENSIVE[name]
    took = []

    for _ in range(3):
        started = time.thread_time()
        field, problem = explain(data, message)
        took.append(time.thread_time() - started)

    assert min(took) < DEADLINE
    assert field
    assert problem


LONG = "0123456789abcdef-" * (LARGEST // 17)
READERS = {
    "page token": lambda: page_token.read(frontend_pb2.ListTasksRequest(page_token=LONG)),
    "task id": lambda: parse_task_id(LONG),
    "setting's name": lambda: field_of(LONG),
    "collection": lambda: filters.of_list(frontend_pb2.ListTasksRequest(collection=LONG)),
}


@pytest.mark.parametrize("name", READERS)
def test_a_text_of_the_largest_size_is_refused_at_once(name):
    read = READERS[name]
    took = []

    for _ in range(3):
        started = time.thread_time()
        with pytest.raises((DulyError, Problem)) as refused:
            read()
        took.append(time.thread_time() - started)

    assert min(took) < DEADLINE
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x0a\x00" * (LARGEST // 2), SCHEDULE),
        (b"\x0a\x00" * (LARGEST // 2), GET),
        (b"\x0a\x00" * (LARGEST // 2), registry_pb2.RegisterLambdasRequest.DESCRIPTOR),
        (b"\x0a\x00" * (LARGEST // 2), hsc_pb2.HeartbeatRequest.DESCRIPTOR),
        (b"\x12\x02\x0a\x00" * (LARGEST // 4), frontend_pb2.ScheduleStreamRequest.DESCRIPTOR),
        (delimited(3, b"\x0a\x00" * 500_000) * 8, hsc_pb2.WorkRequest.DESCRIPTOR),
        (b"\x78\x01" * (LARGEST // 2), SCHEDULE),
    ],
)
def test_very_many_fields_are_refused_before_they_are_read(data, message):
    took = []

    for _ in range(3):
        started = time.thread_time()
        with pytest.raises(InvalidRequestError, match=r"request: has more than [26]0,000 fields"):
            check_field_count(data, message)
        took.append(time.thread_time() - started)

    assert min(took) < DEADLINE


@pytest.mark.parametrize("prefix", [b"\x1b\x1c", b"\x0b\x0c", b"\x07"])
def test_a_large_request_cannot_hide_its_fields_behind_what_no_message_has(prefix):
    with pytest.raises(InvalidRequestError, match="these bytes are no duly"):
        check_field_count(prefix + b"\x0a\x00" * 100_000, SCHEDULE)


def test_the_most_tasks_of_a_call_are_not_too_many_fields():
    task = frontend_pb2.NewTask(
        **{"lambda": "mail.send"}, payload=bytes(500), idempotency_key="k", priority=3
    )
    request = frontend_pb2.ScheduleRequest(tasks=[task] * 10_000)
    alone = frontend_pb2.ScheduleStreamRequest(call=1, schedule=request)

    check_field_count(request.SerializeToString(), SCHEDULE)
    check_field_count(alone.SerializeToString(), frontend_pb2.ScheduleStreamRequest.DESCRIPTOR)


def test_text_that_is_not_utf_8_is_named_by_its_path():
    task = delimited(1, b"mail.send") + delimited(9, b"key \xff")

    assert explain(delimited(1, task), SCHEDULE) == ("tasks.idempotency_key", "must be UTF-8 text")


def test_text_that_ends_within_a_character_is_named():
    assert explain(delimited(1, b"\xe2\x82"), GET) == ("task_ids", "must be UTF-8 text")


def test_a_field_of_number_0_makes_the_whole_request_invalid():
    data = delimited(0, b"") + delimited(1, b"\xff")

    assert explain(data, GET) == ("request", "these bytes are no duly.v1.GetTaskRequest")


def test_the_largest_graph_is_not_too_many_fields():
    edge = graphs_pb2.GraphEdge(label="n", condition=1, or_conditions=[2])
    task = frontend_pb2.NewTask(payload=b"{}", collection="c", resources=b"r", fair_key="f")
    task.delay.seconds = 1
    node = graphs_pb2.GraphNode(
        label="n", task=task, any_of=True, waits_for=[edge] * (MOST_EDGES // MOST_NODES)
    )
    graph = graphs_pb2.ScheduleGraphRequest(name="g", nodes=[node] * MOST_NODES)

    check_field_count(graph.SerializeToString(), graphs_pb2.ScheduleGraphRequest.DESCRIPTOR)
