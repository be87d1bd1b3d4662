"""Binds a gRPC server to its address: with TLS, or where only this machine can reach it."""

import socket
from pathlib import Path

import grpc

from duly_core.errors import PortInUseError
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.tls import refuse_strangers, server_credentials


def bind(server: grpc.aio.Server, listen: str, settings: RpcSettings) -> str:
    """Let a server that has not started serve on HOST:PORT or unix:PATH; return the address, with the port chosen for 0.

    Raises:
        PortInUseError: somebody else listens there.
        SettingsError: it would serve strangers without TLS, or its certificate cannot be read.
    """
    _refuse_a_taken_socket(listen)
    is_local = listen.startswith("unix")
    credentials = None if is_local else server_credentials(settings)
    if credentials is None and not is_local and not settings.allow_plaintext:
        refuse_strangers(listen)
    try:
        port = (
            server.add_insecure_port(listen)
            if credentials is None
            else server.add_secure_port(listen, credentials)
        )
    except RuntimeError as error:
        raise PortInUseError(
            f"cannot listen on {listen}: another process holds it, or the address is not this machine's; "
            "stop that process or choose another `listen` address"
        ) from error
    if listen.startswith("unix:"):
        return listen
    host, separator, _ = listen.rpartition(":")
    return f"{host}{separator}{port}"


def _refuse_a_taken_socket(listen: str) -> None:
    """gRPC would take a unix socket away from its live owner; a dead one's file is removed."""
    if not listen.startswith("unix:"):
        return
    path = listen.removeprefix("unix:")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            Path(path).unlink()
            return
        except OSError as error:
            raise PortInUseError(f"cannot listen on {listen}: {error}") from error
    raise PortInUseError(
        f"cannot listen on {listen}: another process serves there; stop it or choose another socket"
    )
