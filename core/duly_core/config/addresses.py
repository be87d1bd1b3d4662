"""Addresses in settings: checked before gRPC makes something else of an invalid one (a port of its own choice)."""

import re
from ipaddress import ip_address
from typing import Annotated

from pydantic import BeforeValidator

from duly_wire.peers import Peer, is_zone, split_peers

_LAST_PORT = 65_535
_HOST_AND_PORT = re.compile(r"(?:\[[^\[\]\s/]+\]|[^\[\]\s/:,=]+):([0-9]{1,5})")
_LOCAL = re.compile(r"(?:unix|unix-abstract|vsock):.+")
_NAMED = re.compile(r"(?:dns|ipv4|ipv6|xds):.+")


def is_host(name: str) -> bool:
    """Whether it can be resolved at all: with an empty or too long label, resolvers raise what is no OSError."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return bool(name) and name.isprintable()


def is_host_and_port(address: str) -> bool:
    """Whether it is HOST:PORT; an IPv6 host stands in brackets."""
    found = _HOST_AND_PORT.fullmatch(address)
    return found is not None and int(found[1]) <= _LAST_PORT and is_host(address.rpartition(":")[0])


def is_loopback(listen: str) -> bool:
    """Whether only this machine can reach HOST:PORT."""
    host = listen.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_listen(address: object) -> object:
    """Let an address to serve on pass.

    Raises:
        ValueError: it is invalid.
    """
    if isinstance(address, str) and (_LOCAL.fullmatch(address) or is_host_and_port(address)):
        return address
    message = (
        f"{address!r} is not an address to serve on: write HOST:PORT, such as 127.0.0.1:7401, or unix:PATH"
    )
    raise ValueError(message)


def check_optional_listen(address: object) -> object:
    """Let pass what `check_listen` does, and the empty text: no address is given."""
    return address if address == "" else check_listen(address)


def check_peers(addresses: object) -> object:
    """Let an address to connect to pass, or several with commas between them.

    Raises:
        ValueError: it is invalid.
    """
    if isinstance(addresses, str) and (
        _LOCAL.fullmatch(addresses)
        or _NAMED.fullmatch(addresses)
        or all(map(_is_peer, split_peers(addresses)))
    ):
        return addresses
    message = (
        f"{addresses!r} is not an address to connect to: write HOST:PORT, such as 127.0.0.1:7401; several with commas "
        "between them, each with its zone before it (ZONE=HOST:PORT) if you like"
    )
    raise ValueError(message)


def _is_peer(peer: Peer) -> bool:
    # a name alone is not in a list of single servers, but may stand for those of a zone
    return (
        is_host_and_port(peer.address)
        or _LOCAL.fullmatch(peer.address) is not None
        or (bool(peer.zone) and _NAMED.fullmatch(peer.address) is not None)
    )


def check_zone(name: object) -> object:
    """Let the name of a zone pass, and the empty text: none.

    Raises:
        ValueError: it is invalid.
    """
    if name == "" or (isinstance(name, str) and is_zone(name)):
        return name
    message = f"{name!r} is not the name of a zone: write letters, digits, dots, hyphens and underscores (eu-west-1a), at most 63"
    raise ValueError(message)


Listen = Annotated[str, BeforeValidator(check_listen)]
OptionalListen = Annotated[str, BeforeValidator(check_optional_listen)]
Peers = Annotated[str, BeforeValidator(check_peers)]
Zone = Annotated[str, BeforeValidator(check_zone)]
