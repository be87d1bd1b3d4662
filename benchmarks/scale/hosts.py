"""`python -m benchmarks.scale.hosts FRONTEND HOSTS LAMBDAS`: reports hosts as their Controllers do; they take no tasks."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import asyncio
import sys
import time
from datetime import UTC, datetime, timedelta

import grpc

from duly_core.rpc.channel import open_channel
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.stubs import fleet_stub
from duly_wire.time_conversion import to_duration, to_timestamp
from duly_wire.v1 import fleet_pb2

_EXECUTORS = 2
_SETS = 10
"""Applications: of each there are as many hosts."""
_INTERVAL = timedelta(seconds=10)
"""As Controllers' `report_interval`."""
_TIMEOUT = 10.0


def _report(number: int, names: list[str], started_at: datetime) -> fleet_pb2.ReportHostRequest:
    served = names[number % _SETS :: _SETS]
    request = fleet_pb2.ReportHostRequest(
        host_id=f"bench-host-{number}",
        name=f"worker-{number}.example",
        version="0.1.0",
        queue_backend="store",
        started_at=to_timestamp(started_at),
        interval=to_duration(_INTERVAL),
        executors=[
            fleet_pb2.Executor(
                executor_id=f"bench-host-{number}-{place}",
                pid=100 + place,
                version="0.1.0",
                processes=2,
                slots=4,
                busy_slots=4,
                started_at=to_timestamp(started_at),
            )
            for place in range(_EXECUTORS)
        ],
        lambdas_digest=f"{number % _SETS:016}".encode(),
        clock_ahead=to_duration(timedelta(milliseconds=3)),
    )
    request.lambda_sets.add(lambdas=[fleet_pb2.HostLambda(name=name, version="1") for name in served])
    return request


async def _live(frontend: str, number: int, names: list[str], delay: float) -> None:
    async with open_channel(frontend, RpcSettings()) as channel:
        stub, report = fleet_stub(channel), _report(number, names, datetime.now(UTC))
        await asyncio.sleep(delay)
        next_at = time.monotonic()
        while True:
            try:
                answer = await stub.ReportHost(report, timeout=_TIMEOUT)
            except grpc.aio.AioRpcError as error:
                print(
                    error.code(), error.details(), file=sys.stderr, flush=True
                )  # as a Controller, it reports again
            else:
                if not answer.lambdas_wanted:
                    del report.lambda_sets[:]
            next_at += _INTERVAL.total_seconds()
            await asyncio.sleep(max(0.0, next_at - time.monotonic()))


async def main(frontend: str, hosts: int, lambdas: int) -> None:
    """Report until the parent ends."""
    names = [f"team-{number % 50}/job.{number:05}" for number in range(1, lambdas + 1)]
    delays = (place / hosts * _INTERVAL.total_seconds() for place in range(hosts))
    async with asyncio.TaskGroup() as group:
        for number, delay in enumerate(delays, start=1):
            group.create_task(_live(frontend, number, names, delay))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
