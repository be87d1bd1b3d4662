"""What a callback process says of a wait: an invalid one fails its own attempt, and the results of others are written."""

import pytest
from google.protobuf.duration_pb2 import Duration

from duly_hsc.convert_ends import results
from duly_wire.enums import FailureKind, Outcome
from duly_wire.v1 import hsc_pb2

DAY = Duration(seconds=86_400)
GOOD = {"name": "first:1", "keys": ["approved"], "timeout": DAY}


def waiting(**changed):
    claim = hsc_pb2.Claim(task_id=b"t" * 16, token=b"c" * 16)
    wait = hsc_pb2.EventWait(**{name: value for name, value in (GOOD | changed).items() if value is not None})
    return hsc_pb2.TaskResult(claim=claim, outcome=hsc_pb2.OUTCOME_WAIT_FOR_EVENT, event_wait=wait)


def test_why_an_event_is_refused_is_one_short_line():
    refused = [hsc_pb2.RefusedEvent(key="approved", reason="é\n\0" + "é" * 300)]

    (read,) = results([waiting(refused=refused)])

    ((key, reason),) = read.event_wait.refused
    assert key == "approved"
    assert len(reason.encode()) <= 300
    assert not {"\n", "\0"} & {*reason}


def test_a_wait_is_read():
    (read,) = results([waiting(needs_all=True)])

    assert read.outcome is Outcome.WAIT_FOR_EVENT
    assert (read.event_wait.keys, read.event_wait.needs_all) == (("approved",), True)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"name": ""}, "event_wait.name"),
        ({"name": "x" * 129}, "event_wait.name"),
        ({"keys": []}, "1 to 16 keys"),
        ({"keys": ["a"] * 2}, "each once"),
        ({"keys": [str(number) for number in range(17)]}, "1 to 16 keys"),
        ({"keys": [""]}, "event_wait.keys"),
        ({"keys": ["é" * 128]}, "event_wait.keys"),
        ({"keys": ["a\0"]}, "event_wait.keys"),
        ({"refused": [hsc_pb2.RefusedEvent(key="other")]}, "event_wait.refused"),
        ({"refused": [hsc_pb2.RefusedEvent(key="approved")] * 2}, "event_wait.refused"),
        ({"timeout": None}, "for how long"),
        ({"timeout": Duration()}, "event_wait.timeout"),
        ({"timeout": Duration(seconds=-1)}, "event_wait.timeout"),
        ({"timeout": Duration(seconds=366 * 86_400)}, "event_wait.timeout"),
    ],
)
def test_a_wait_that_is_invalid_fails_its_attempt_alone(changed, words):
    other = hsc_pb2.TaskResult(
        claim=hsc_pb2.Claim(task_id=b"u" * 16, token=b"c" * 16), outcome=hsc_pb2.OUTCOME_SUCCESS, result=b"1"
    )

    failed, written = results([waiting(**changed), other])

    assert (failed.outcome, failed.failure_kind) == (Outcome.FATAL_FAILURE, FailureKind.BAD_RESULT)
    assert words in failed.failure_message
    assert written.outcome is Outcome.SUCCESS
