"""A channel to Duly servers: dead ones are noticed, and one that is back is found soon."""

from pathlib import Path
from typing import cast

import grpc

from duly_core.errors import SettingsError
from duly_core.rpc.settings import RpcSettings
from duly_wire.connection_errors import CredentialsError
from duly_wire.credentials import Credentials, TokenFile, check_secrecy
from duly_wire.peer_channel import PeerChannel
from duly_wire.peers import (
    FAST_KEEPALIVE,
    ROUND_ROBIN,
    Avoided,
    near,
    split_addresses,
    split_peers,
    stands_for_several,
)
from duly_wire.reloading_channel import ReloadingChannel
from duly_wire.tls_files import TlsFiles
from duly_wire.token_channel import show_token


def open_channel(address: str, settings: RpcSettings) -> grpc.aio.Channel:
    """Open a channel to HOST:PORT, to unix:PATH, to a name (dns:///NAME:PORT), or to several with commas between them.

    Each may have its zone before it (ZONE=HOST:PORT): those of `rpc.zone` are used first.

    Raises:
        SettingsError: the files of TLS, or the token's, cannot be read; or the token would be sent without TLS.
    """
    servers = split_peers(address)
    addresses = [server.address for server in servers]
    credentials = _credentials(address, settings)
    if len(addresses) == 1:
        return _open_one(
            addresses[0], settings, credentials, is_one_of_several=stands_for_several(addresses[0])
        )
    peers = PeerChannel(
        addresses,
        lambda each: _open_one(each, settings, credentials, is_one_of_several=True),
        Avoided(),
        near(servers, settings.zone),
    )
    return cast("grpc.aio.Channel", peers)


def names_several(address: str) -> bool:
    """Tell whether there may be several servers at this address."""
    addresses = split_addresses(address)
    return len(addresses) > 1 or stands_for_several(addresses[0])


def _credentials(address: str, settings: RpcSettings) -> Credentials:
    names = ("rpc.ca_file", "rpc.cert_file", "rpc.key_file")
    try:
        files = (
            TlsFiles(settings.ca_file, settings.cert_file, settings.key_file, names)
            if settings.ca_file
            else None
        )
        token = TokenFile(Path(settings.token_file)).read if settings.token_file else None
        credentials = Credentials(files, token)
        check_secrecy(address, credentials, allow_plaintext=settings.allow_plaintext)
    except CredentialsError as error:
        raise SettingsError(str(error)) from error
    return credentials


def _open_one(
    address: str, settings: RpcSettings, credentials: Credentials, *, is_one_of_several: bool
) -> grpc.aio.Channel:
    options: dict[str, str | int] = {
        "grpc.max_receive_message_length": settings.max_message_bytes,
        "grpc.max_send_message_length": settings.max_message_bytes,
        "grpc.keepalive_time_ms": 20_000,
        "grpc.keepalive_timeout_ms": 5_000,
        # without it a stopped peer goes unnoticed: see docs/decisions/0001-dependencies.md
        "grpc.http2.ping_timeout_ms": 5_000,
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.initial_reconnect_backoff_ms": 100,
        "grpc.min_reconnect_backoff_ms": 500,
        "grpc.max_reconnect_backoff_ms": 2_000,
        "grpc.use_local_subchannel_pool": 1,
    }
    if is_one_of_several:
        options |= dict(FAST_KEEPALIVE)
    if stands_for_several(address):
        options |= dict(ROUND_ROBIN)

    def secure(tls: grpc.ChannelCredentials) -> grpc.aio.Channel:
        return grpc.aio.secure_channel(address, tls, options=[*options.items()])

    if isinstance(credentials.tls, TlsFiles) and not address.startswith("unix"):
        channel: grpc.aio.Channel = ReloadingChannel(credentials.tls, secure)
    else:
        channel = grpc.aio.insecure_channel(address, options=[*options.items()])
    return show_token(channel, credentials.token)
