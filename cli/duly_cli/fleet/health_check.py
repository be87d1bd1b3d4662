"""Asks a service whether it serves, with the TLS that the environment names."""

from contextlib import suppress

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from duly.errors import UnavailableError
from duly.transport.channel import open_blocking_channel
from duly_core.config.addresses import is_loopback
from duly_wire.connection_advice import advice
from duly_wire.credentials import Credentials


def ask_health(address: str, timeout_s: float) -> str:
    """Return the name of the status: SERVING, NOT_SERVING.

    Raises CredentialsError, UnavailableError. On this machine a server without TLS is asked as well: those of
    health checks alone have none.
    """
    tls = Credentials.resolve(None, None).tls
    try:
        return _ask(address, Credentials(tls), timeout_s)
    except grpc.RpcError as error:
        if tls is not None and (address.startswith("unix") or is_loopback(address)):
            with suppress(grpc.RpcError):
                return _ask(address, Credentials(), timeout_s)
        remedy = advice(error.details() or "")
        raise UnavailableError(
            f"{address} does not answer: {error.code().name}" + (f"; {remedy}" if remedy else "")
        ) from error


def _ask(address: str, credentials: Credentials, timeout_s: float) -> str:
    with open_blocking_channel(address, credentials, is_one_of_several=False) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
