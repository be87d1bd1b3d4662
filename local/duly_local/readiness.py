"""Whether a service is ready: what its gRPC health check (grpc.health.v1) answers."""

import asyncio
from datetime import timedelta

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_ONE_CALL = timedelta(seconds=1)
_LOOK_AGAIN_AFTER = timedelta(milliseconds=50)

# A subchannel that failed waits before it connects again; a service that starts needs no such patience.
_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


async def wait_until_healthy(address: str, within: timedelta) -> bool:
    """Ask until the service at `host:port` says it serves; False: it did not within that time."""
    try:
        async with (
            asyncio.timeout(within.total_seconds()),
            grpc.aio.insecure_channel(address, options=_OPTIONS) as channel,
        ):
            stub = health_pb2_grpc.HealthStub(channel)
            while not await _serves(stub):  # noqa: ASYNC110 (the event is in another process)
                await asyncio.sleep(_LOOK_AGAIN_AFTER.total_seconds())
    except TimeoutError:
        return False
    return True


async def _serves(stub: health_pb2_grpc.HealthStub) -> bool:
    try:
        answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=_ONE_CALL.total_seconds())
    except grpc.aio.AioRpcError:
        return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
