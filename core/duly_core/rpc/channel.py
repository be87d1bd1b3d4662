"""A channel to a Duly server: dead peers are noticed, and a server that is back is found soon."""

from pathlib import Path

import grpc

from duly.credentials import Credentials, TokenFile, check_secrecy, interceptors
from duly.errors import CredentialsError
from duly.reloading_channel import ReloadingChannel
from duly.tls_files import TlsFiles
from duly_core.errors import SettingsError
from duly_core.rpc.settings import RpcSettings


def open_channel(address: str, settings: RpcSettings) -> grpc.aio.Channel:
    """A channel to HOST:PORT, to unix:PATH, or to several IP:PORT separated by commas (used in turn).

    Raises:
        SettingsError: the files of TLS, or the token's, cannot be read.
    """
    options: list[tuple[str, str | int]] = [
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", settings.max_message_bytes),
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        # without it a stopped peer goes unnoticed: see docs/decisions/0001-dependencies.md
        ("grpc.http2.ping_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 500),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if "," in address:
        address = "ipv4:" + address
        options.append(("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'))
    try:
        files = None if address.startswith("unix") else _files(settings)
        token = TokenFile(Path(settings.token_file)).read if settings.token_file else None
        check_secrecy(address, Credentials(files, token), allow_plaintext=settings.allow_plaintext)
    except CredentialsError as error:
        raise SettingsError(str(error)) from error
    shows = interceptors(token)
    if files is None:
        return grpc.aio.insecure_channel(address, options=options, interceptors=shows)

    def secure(tls: grpc.ChannelCredentials) -> grpc.aio.Channel:
        return grpc.aio.secure_channel(address, tls, options=options, interceptors=shows)

    return ReloadingChannel(files, secure)


def _files(settings: RpcSettings) -> TlsFiles | None:
    if not settings.ca_file:
        return None
    names = ("rpc.ca_file", "rpc.cert_file", "rpc.key_file")
    return TlsFiles(settings.ca_file, settings.cert_file, settings.key_file, names)
