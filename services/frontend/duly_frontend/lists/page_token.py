"""Page tokens: where the next page begins; those of ListTasks and ListGraphs are bound to the filters of the first."""

import base64
import binascii
import copy
import hashlib

from duly_core.rpc.requests.problem import Problem
from duly_wire.v1 import frontend_pb2, graphs_pb2

Request = frontend_pb2.ListTasksRequest | graphs_pb2.ListGraphsRequest

_ID_BYTES = 16
_FINGERPRINT_BYTES = 8
_LENGTH = (_ID_BYTES + _FINGERPRINT_BYTES) * 4 // 3
"""In base64, without padding."""
_LONGEST_COUNT = 9


def _fingerprint(request: Request) -> bytes:
    filters = copy.deepcopy(request)
    filters.ClearField("page_size")
    filters.ClearField("page_token")
    return hashlib.sha256(filters.SerializeToString(deterministic=True)).digest()[:_FINGERPRINT_BYTES]


def write(request: Request, last: bytes) -> str:
    """The token of the page after the one that ends with the task or graph `last`."""
    return base64.urlsafe_b64encode(last + _fingerprint(request)).decode().rstrip("=")


def read(request: Request) -> bytes | None:
    """The id below which this page begins; None for the first page.

    Raises:
        Problem: the token is not one of ours, or of a list with other filters.
    """
    if not request.page_token:
        return None
    token = _decoded(request.page_token) if len(request.page_token) == _LENGTH else b""
    if len(token) != _ID_BYTES + _FINGERPRINT_BYTES:
        raise _not_a_token()
    if token[_ID_BYTES:] != _fingerprint(request):
        raise Problem("page_token", "belongs to a list with other filters: repeat the filters, or start anew")
    return token[:_ID_BYTES]


def write_name(last: str) -> str:
    """Return the token of the page after the one that ends with this name, of a list by name."""
    return base64.urlsafe_b64encode(last.encode()).decode()


def read_name(token: str) -> str:
    """Return the name behind which a page begins; empty for the first page.

    Raises:
        Problem: the token is not one of ours.
    """
    try:
        name = _decoded(token).decode()
    except UnicodeDecodeError:
        raise _not_a_token() from None
    if "\x00" in name or (token and not name):
        raise _not_a_token()
    return name


def write_place(after: str, skipped: int) -> str:
    """Return the token of the page that begins `skipped` items behind this name; empty: behind the list's begin."""
    return write_name(f"{after}\x00{skipped}" if skipped else after)


def read_place(token: str) -> tuple[str, int]:
    """Return behind which name, and how many items behind it, a page begins.

    Raises:
        Problem: the token is not one of ours.
    """
    name, mark, count = _decoded(token).decode(errors="replace").partition("\x00")
    if not mark:
        return read_name(token), 0
    if "\ufffd" in name or not (count.isascii() and count.isdecimal() and len(count) <= _LONGEST_COUNT):
        raise _not_a_token()
    return name, int(count)


def _decoded(token: str) -> bytes:
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""


def _not_a_token() -> Problem:
    return Problem("page_token", "not a page token: use the next_page_token of the page before")
