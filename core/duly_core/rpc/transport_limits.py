"""What a server lets its peers take: connections, calls, headers, time. Options of gRPC.

There is no limit on a connection's age: a host's stream of work lives as long as the host, and would be cut.
"""

import resource
from datetime import timedelta

from duly_core.rpc.settings import RpcSettings

_METADATA = 16 * 1024
"""Bytes of a call's metadata. A peer that has not acknowledged the server's settings yet may send gRPC's own 16 MiB."""

_CONNECTIONS_PENDING = 4
"""Calls of so many connections, each with all that it may have, may wait for the server to begin them.

gRPC queues the calls that Python has not begun, those of all callers together, and ends what comes beyond a limit with
CANCELLED, whoever calls. Its own limits (at random from 1,000 on, all from 3,000) are reached by one connection. A longer
queue would mostly hold calls whose callers no longer wait."""

_OF_DESCRIPTORS = 0.4
"""A process may have two servers, and needs descriptors for Postgres and files."""


def bounds(settings: RpcSettings) -> list[tuple[str, int]]:
    """Return the options of a server."""
    pending = _CONNECTIONS_PENDING * settings.max_calls_per_connection
    return [
        ("grpc.max_allowed_incoming_connections", most_connections(settings)),
        ("grpc.max_concurrent_streams", settings.max_calls_per_connection),
        ("grpc.server.max_pending_requests", pending),
        ("grpc.server.max_pending_requests_hard_limit", pending),
        ("grpc.max_metadata_size", _METADATA),
        ("grpc.absolute_max_metadata_size", _METADATA),
        # who says nothing, or not all that a connection begins with
        ("grpc.server_handshake_timeout_ms", _ms(settings.handshake_timeout)),
        ("grpc.http2.settings_timeout", _ms(settings.handshake_timeout)),
        ("grpc.max_connection_idle_ms", _ms(settings.idle_timeout)),
        # a machine that vanished keeps no connection, nor what it called
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.ping_timeout_ms", 20_000),  # else a minute
        # clients that know several servers ping often (`duly.peers`); who pings more often than this is hung up on
        ("grpc.http2.min_ping_interval_without_data_ms", 100),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


def most_connections(settings: RpcSettings) -> int:
    """Return how many connections a server accepts."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return settings.max_connections
    return max(1, min(settings.max_connections, int(descriptors * _OF_DESCRIPTORS)))


def _ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
