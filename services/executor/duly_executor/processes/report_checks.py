"""What of a callback process's report is believed: callbacks can write to its link, so the report may be of their making."""

from duly.callbacks.invoke import one_line
from duly_core.rpc.requests.field_count import most_fields_of
from duly_executor.processes.environment import CallbackEnvironment
from duly_executor.results.failures import bad_result
from duly_wire.v1 import callback_pb2, hsc_pb2, task_pb2

MOST_RESULT_BYTES = 6 * 1024 * 1024
"""The HSC takes a result of 1 MiB, children of 4 MiB, and texts."""
MOST_RESULT_FIELDS = most_fields_of(hsc_pb2.SetResultsRequest.DESCRIPTOR) - 1_000
"""Of one result: as the HSC counts those of the request that brings it, and some for the request itself."""
_FIELDS = 12
"""Of a result without what it writes, at most."""
_NODE_FIELDS = 8
_EDGE_FIELDS = 4
_REFUSED_FIELDS = 3
_OUTCOMES = frozenset(
    (
        hsc_pb2.OUTCOME_FATAL_FAILURE,
        hsc_pb2.OUTCOME_RETRIABLE_FAILURE,
        hsc_pb2.OUTCOME_SNOOZED,
        hsc_pb2.OUTCOME_CANCELLED,
        hsc_pb2.OUTCOME_CRASHED,
        hsc_pb2.OUTCOME_COMPLETE_LATER,
        hsc_pb2.OUTCOME_WAIT_FOR_EVENT,
    )
)
"""What a callback ends with unless it succeeds. CRASHED: a program that ran the attempt for it died (`duly.programs`). A callback
can have that without saying so: it ends its own process."""
_MOST_MESSAGE = 3_500
"""Characters of a failure's message; with the names of withheld variables it is within what the HSC takes."""


def refuse_large(report: callback_pb2.CallbackReport) -> None:
    """Replace results that the HSC would not take: such a request would end the stream on which those of others go."""
    for result in report.results:
        if (size := result.ByteSize()) > MOST_RESULT_BYTES:
            message = f"the result and what belongs to it are too large: {size:,} bytes"
        elif (count := fields_of(result)) > MOST_RESULT_FIELDS:
            message = f"the result and what belongs to it are too large: about {count:,} fields"
        else:
            continue
        result.CopyFrom(bad_result(result.claim, message))


def fields_of(result: hsc_pb2.TaskResult) -> int:
    """Return how many fields the HSC counts in a result, or some more. Most results have no children, and are not looked into."""
    count = _FIELDS + len(result.children)
    if result.outcome == hsc_pb2.OUTCOME_WAIT_FOR_EVENT:
        count += len(result.event_wait.keys) + _REFUSED_FIELDS * len(result.event_wait.refused)
    for node in result.nodes:
        count += _NODE_FIELDS + _EDGE_FIELDS * len(node.waits_for)
    return count


def checked(result: hsc_pb2.TaskResult, environment: CallbackEnvironment) -> hsc_pb2.TaskResult:
    """Return the result if it is one that a callback can have; a failure for want of a withheld variable says so."""
    if result.outcome == hsc_pb2.OUTCOME_SUCCESS:
        return result
    if result.outcome not in _OUTCOMES:
        return bad_result(result.claim, "the result has no outcome that a callback can have")
    if (
        result.outcome == hsc_pb2.OUTCOME_FATAL_FAILURE
        and result.failure_kind == task_pb2.FAILURE_KIND_MAX_RUNTIME
    ):
        result.failure_kind = task_pb2.FAILURE_KIND_CALLBACK  # whether a timeout is final, the store says
    if result.failure_kind == task_pb2.FAILURE_KIND_EXCEPTION:
        hint = environment.hint(result.failure_message)
        result.failure_message = one_line(result.failure_message[:_MOST_MESSAGE] + hint)
    return result
