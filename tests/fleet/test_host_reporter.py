"""The reports of a host go on, whatever becomes of one of them."""

import asyncio
from datetime import timedelta

from duly_controller.executor_registry import ExecutorRegistry
from duly_controller.host_reporter import HostReporter
from duly_wire.v1 import fleet_pb2

SHORT = timedelta(milliseconds=10)


class Fleet:
    """Fails once with an error that is no status of gRPC."""

    def __init__(self):
        self.requests = []
        self.reported = asyncio.Event()

    async def ReportHost(self, request, timeout):  # noqa: N802 (the wire's name)
        self.requests.append(request)
        if len(self.requests) == 1:
            raise ValueError("not a status")
        self.reported.set()
        return fleet_pb2.ReportHostResponse()


async def test_an_unexpected_error_does_not_end_the_reports_and_the_lambdas_are_sent_again():
    fleet = Fleet()
    reporter = HostReporter("host", fleet, ExecutorRegistry(lambda _: None), "store", SHORT, SHORT)

    finish = reporter.begin(asyncio.Event())
    async with asyncio.timeout(10):
        await fleet.reported.wait()
    await finish()

    first, second, *_ = fleet.requests
    assert len(first.lambda_sets) == len(second.lambda_sets) == 1
    assert fleet.requests[-1].stopped
