"""Addresses in settings: checked before gRPC makes something else of an invalid one (a port of its own choice)."""

import re
from ipaddress import ip_address
from typing import Annotated

from pydantic import BeforeValidator

_LAST_PORT = 65_535
_HOST_AND_PORT = re.compile(r"(?:\[[^\[\]\s/]+\]|[^\[\]\s/:,]+):([0-9]{1,5})")
_LOCAL = re.compile(r"(?:unix|unix-abstract|vsock):.+")
_NAMED = re.compile(r"(?:dns|ipv4|ipv6|xds):.+")


def is_host_and_port(address: str) -> bool:
    """Whether it is HOST:PORT; an IPv6 host stands in brackets."""
    found = _HOST_AND_PORT.fullmatch(address)
    return found is not None and int(found[1]) <= _LAST_PORT


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
        or all(
            is_host_and_port(address.strip()) or _LOCAL.fullmatch(address.strip())
            for address in addresses.split(",")
        )
    ):
        return addresses
    message = f"{addresses!r} is not an address to connect to: write HOST:PORT, such as 127.0.0.1:7401"
    raise ValueError(message)


Listen = Annotated[str, BeforeValidator(check_listen)]
OptionalListen = Annotated[str, BeforeValidator(check_optional_listen)]
Peers = Annotated[str, BeforeValidator(check_peers)]
