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
        raise UnavailableError(f"{address} does not answer: {_in_words(error, timeout_s)}") from None


def _in_words(error: grpc.RpcError, timeout_s: float) -> str:
    details = error.details() or ""
    if remedy := advice(details):
        return remedy
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"nothing came within {timeout_s:g} s: the process is stopped or overloaded, or is no service of Duly"
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return "it has no health check, so it is no service of Duly"
    return next((said for words, said in _BY_WORDS if words in details), details)


_BY_WORDS = (
    ("Connection refused", "nothing listens there: the service does not run, or has another address"),
    (
        "errors resolving",
        "the name of the host cannot be found: correct it, or write the address as a number",
    ),
    ("No such file", "nothing listens there: there is no such socket"),
)


def _ask(address: str, credentials: Credentials, timeout_s: float) -> str:
    with open_blocking_channel(address, credentials, is_one_of_several=False) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
