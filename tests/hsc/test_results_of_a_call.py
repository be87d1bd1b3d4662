"""Results as a call brings them: read together or each alone, they are the same."""

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from duly_core.errors import InvalidRequestError
from duly_hsc.convert_ends import results
from duly_wire.ids import new_task_id
from duly_wire.v1 import hsc_pb2, task_pb2

SUCCESSES = [
    {},
    {"result": b"{}", "result_encoding": task_pb2.ENCODING_JSON},
    {
        "result": b"\x00",
        "result_encoding": task_pb2.ENCODING_RAW,
        "started_at": Timestamp(seconds=5, nanos=999),
    },
]
OTHERS = [
    {"outcome": hsc_pb2.OUTCOME_RETRIABLE_FAILURE, "failure_message": "no"},
    {"outcome": hsc_pb2.OUTCOME_SNOOZED, "retry_after": Duration(seconds=5)},
    {"attachments": [{"hash": bytes(32), "name": "log"}]},
    {"result_encoding": task_pb2.ENCODING_ATTACHMENT},
]


def ended(**fields):
    claim = hsc_pb2.Claim(task_id=new_task_id().bytes, token=new_task_id().bytes)
    return hsc_pb2.TaskResult(**{"claim": claim, "outcome": hsc_pb2.OUTCOME_SUCCESS} | fields)


@pytest.mark.parametrize("others", [[], *([other] for other in OTHERS)])
def test_results_of_one_call_are_what_each_is_alone(others):
    messages = [ended(**fields) for fields in (*SUCCESSES, *others)]

    assert results(messages) == [result for message in messages for result in results([message])]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"result": bytes(1024 * 1024 + 1)}, "results.result"),
        ({"result_encoding": 9}, "results.result_encoding"),
        ({"outcome": 0}, "results.outcome"),
        ({"started_at": Timestamp(nanos=-1)}, "results.started_at"),
        ({"claim": hsc_pb2.Claim(task_id=b"short", token=bytes(16))}, "results"),
    ],
)
def test_an_invalid_success_is_refused_among_valid_ones_too(fields, named):
    with pytest.raises(InvalidRequestError) as error:
        results([ended(), ended(**fields)])

    assert error.value.field == named
