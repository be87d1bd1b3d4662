"""The gRPC channel to a Frontend, and where that Frontend is."""

import os
import re
from typing import cast

import grpc

from duly.errors import AddressError
from duly_wire.credentials import Credentials, check_secrecy, plaintext_is_allowed
from duly_wire.peer_channel import PeerChannel
from duly_wire.peers import (
    FAST_KEEPALIVE,
    ROUND_ROBIN,
    ZONE,
    Avoided,
    is_zone,
    near,
    split_addresses,
    split_peers,
    stands_for_several,
)
from duly_wire.reloading_channel import ReloadingChannel
from duly_wire.tls_files import TlsFiles
from duly_wire.token_channel import show_token, show_token_blocking

DEFAULT_ADDRESS = "127.0.0.1:7401"
ADDRESS_VARIABLE = "DULY_ADDRESS"

# gRPC would take `localhost` for its port 443, and say of `http://...` that nobody answers there.
_HOST_AND_PORT = re.compile(r"(?:\[[^\[\]\s/]+\]|[^\[\]\s/:,=]+):([0-9]{1,5})")
_OTHER_FORMS = re.compile(r"(?:unix|unix-abstract|vsock|dns|ipv4|ipv6|xds):.+")
_LAST_PORT = 65_535

_MESSAGE_LIMIT_BYTES = 8 * 1024 * 1024

# Milliseconds where it is a time. The first three find a dead connection within half a minute, also
# while nothing is asked; the next two find a restarted Frontend within two seconds.
_OPTIONS: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.max_send_message_length", _MESSAGE_LIMIT_BYTES),
    ("grpc.max_receive_message_length", _MESSAGE_LIMIT_BYTES),
    # A connection for each channel, so that one client's trouble, or load, is not another's.
    ("grpc.use_local_subchannel_pool", 1),
]


def resolve_address(address: str | None) -> str:
    """Return the address given, else DULY_ADDRESS, else the default.

    Raises AddressError if it is invalid, such as one without a port.
    """
    if address:
        return check_address(address)
    return check_address(os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS, f" (in {ADDRESS_VARIABLE})")


def check_address(address: object, source: str = "") -> str:
    """Return the address if gRPC can connect to such a one; raise AddressError otherwise.

    Several are separated by commas. Each may have its zone before it: `east=10.0.1.11:7401`.
    """
    wrong = (
        [each for each in split_addresses(address) if not _is_address(each)]
        if isinstance(address, str)
        else [address]
    )
    if isinstance(address, str) and not wrong:
        return address
    named = repr(address) if wrong == [address] else f"{wrong[0]!r} of {address!r}"
    in_zone = "; a zone and '=' may stand before it" if isinstance(address, str) and "=" in address else ""
    raise AddressError(
        f"{named}{source} is not an address: write HOST:PORT, such as {DEFAULT_ADDRESS}, or unix:PATH{in_zone}"
    )


def resolve_zone(zone: str | None) -> str:
    """Return the zone given, else that of the environment (DULY_RPC_ZONE), else none.

    Raises AddressError if it is no name of a zone.
    """
    name = os.environ.get(ZONE, "") if zone is None else zone
    if not name or is_zone(name):
        return name
    source = f" (in {ZONE})" if zone is None else ""
    raise AddressError(
        f"{name!r}{source} is not the name of a zone: write letters, digits, dots, hyphens and underscores, at most 63"
    )


def _is_address(address: str) -> bool:
    found = _HOST_AND_PORT.fullmatch(address)
    return 0 < int(found[1]) <= _LAST_PORT if found else _OTHER_FORMS.fullmatch(address) is not None


def open_channel(
    address: str, credentials: Credentials, avoided: Avoided | None = None, zone: str = ""
) -> grpc.aio.Channel:
    """Open a channel on the running event loop; it connects when it is first used.

    Of several servers those of `zone` get the calls while they serve; empty: all do.
    """
    check_secrecy(address, credentials, allow_plaintext=plaintext_is_allowed())
    servers = split_peers(address)
    addresses = [server.address for server in servers]
    if len(addresses) == 1:
        return _open_one(addresses[0], credentials, is_one_of_several=stands_for_several(addresses[0]))
    peers = PeerChannel(
        addresses,
        lambda each: _open_one(each, credentials, is_one_of_several=True),
        avoided or Avoided(),
        near(servers, zone),
    )
    return cast("grpc.aio.Channel", peers)


def _open_one(address: str, credentials: Credentials, *, is_one_of_several: bool) -> grpc.aio.Channel:
    options = _options(address, is_one_of_several=is_one_of_several)

    def secure(tls: grpc.ChannelCredentials) -> grpc.aio.Channel:
        return grpc.aio.secure_channel(address, tls, options=options)

    if credentials.tls is None:
        channel = grpc.aio.insecure_channel(address, options=options)
    elif isinstance(credentials.tls, TlsFiles):
        channel = ReloadingChannel(credentials.tls, secure)
    else:
        channel = secure(credentials.tls)
    return show_token(channel, credentials.token)


def open_blocking_channel(address: str, credentials: Credentials, *, is_one_of_several: bool) -> grpc.Channel:
    """Open a channel for blocking calls to a single address, with the files of now; otherwise as `open_channel`."""
    check_secrecy(address, credentials, allow_plaintext=plaintext_is_allowed())
    options = _options(address, is_one_of_several=is_one_of_several)
    tls = credentials.tls
    if tls is None:
        channel = grpc.insecure_channel(address, options=options)
    else:
        newest = tls.newest if isinstance(tls, TlsFiles) else tls
        channel = grpc.secure_channel(address, newest, options=options)
    return show_token_blocking(channel, credentials.token)


def _options(address: str, *, is_one_of_several: bool) -> list[tuple[str, str | int]]:
    options: dict[str, str | int] = dict(_OPTIONS)
    if is_one_of_several:
        options |= dict(FAST_KEEPALIVE)
    if stands_for_several(address):
        options |= dict(ROUND_ROBIN)
    return [*options.items()]
