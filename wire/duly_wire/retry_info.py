"""What an overloaded server answers: RESOURCE_EXHAUSTED, and when to send the same request again."""

from __future__ import annotations

import random

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

_MOST_JITTER = 0.5


def overloaded(message: str, retry_after: duration_pb2.Duration) -> status_pb2.Status:
    """Return the status of a server that is overloaded."""
    packed = any_pb2.Any()
    packed.Pack(error_details_pb2.RetryInfo(retry_delay=retry_after))
    return status_pb2.Status(code=code_pb2.RESOURCE_EXHAUSTED, message=message, details=[packed])


def pause_of(error: grpc.RpcError) -> float | None:
    """Return the seconds to wait before the request is sent again; None: the server is not overloaded.

    Up to half more than the server says, so that not all come back at once.
    """
    if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
        return None
    try:
        status = rpc_status.from_call(error)
    except ValueError:  # details that contradict the status they came with
        return None
    info = error_details_pb2.RetryInfo()
    if status is None or not any(detail.Unpack(info) for detail in status.details):
        return None
    return jittered(info.retry_delay)


def jittered(retry_after: duration_pb2.Duration) -> float:
    """Return the seconds to wait that a server says, and up to half more."""
    spread = 1 + random.uniform(0, _MOST_JITTER)  # noqa: S311 (jitter is no secret)
    return max(0.0, retry_after.ToTimedelta().total_seconds()) * spread
