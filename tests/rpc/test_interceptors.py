"""What a server keeps of the calls that it refuses."""

import gc
import weakref
from datetime import timedelta

import grpc
import pytest
from google.rpc import code_pb2, error_details_pb2

from duly_core.errors import DulyError, OverloadedError, QueueUnavailableError, StoreUnavailableError
from duly_core.rpc.error_status import status_of
from duly_core.rpc.interceptors import ServerInterceptor


class Request:
    """Stands for a message, which may be large."""


class Context:
    """Notes the status, and ends the call as gRPC does."""

    async def abort_with_status(self, status):
        self.code = status.code
        raise grpc.aio.AbortError


async def refuse(_request, _context):
    raise StoreUnavailableError("away")


async def test_a_refused_call_leaves_nothing_of_its_request_to_the_collector():
    requests, observed, context = [], [], Context()

    def read(_data):
        request = Request()
        requests.append(weakref.ref(request))
        return request

    call = ServerInterceptor(lambda *what: observed.append(what[:2]))._wrap(
        refuse, read, "Schedule", "/duly.v1.FrontendService/Schedule"
    )
    gc.disable()
    try:
        with pytest.raises(grpc.aio.AbortError):
            await call(b"", context)

        assert requests[0]() is None
    finally:
        gc.enable()
    assert context.code is grpc.StatusCode.UNAVAILABLE
    assert observed == [("Schedule", "UNAVAILABLE")]


@pytest.mark.parametrize("error", [StoreUnavailableError, QueueUnavailableError])
def test_what_may_succeed_later_is_unavailable_on_the_wire(error: type[DulyError]) -> None:
    assert status_of(error("away")).code == code_pb2.UNAVAILABLE


def test_an_overloaded_server_says_when_to_try_again() -> None:
    status = status_of(OverloadedError("too much", timedelta(milliseconds=250)))

    info = error_details_pb2.RetryInfo()
    assert status.code == code_pb2.RESOURCE_EXHAUSTED
    assert status.details[0].Unpack(info)
    assert info.retry_delay.ToTimedelta() == timedelta(milliseconds=250)
