"""Page tokens of ListTasks and ListGraphs: where the next page begins, bound to the filters of the first."""

import base64
import binascii
import copy
import hashlib

from duly.v1 import frontend_pb2, graphs_pb2
from duly_core.errors import InvalidRequestError

Request = frontend_pb2.ListTasksRequest | graphs_pb2.ListGraphsRequest

_ID_BYTES = 16
_FINGERPRINT_BYTES = 8
_LENGTH = (_ID_BYTES + _FINGERPRINT_BYTES) * 4 // 3
"""In base64, without padding."""


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
        InvalidRequestError: the token is not one of ours, or of a list with other filters.
    """
    if not request.page_token:
        return None
    text = request.page_token
    try:
        token = base64.b64decode(text, altchars=b"-_", validate=True) if len(text) == _LENGTH else b""
    except (binascii.Error, ValueError):
        token = b""
    if len(token) != _ID_BYTES + _FINGERPRINT_BYTES:
        raise InvalidRequestError(
            "page_token", "not a page token: use the next_page_token of the page before"
        )
    if token[_ID_BYTES:] != _fingerprint(request):
        raise InvalidRequestError(
            "page_token", "belongs to a list with other filters: repeat the filters, or start anew"
        )
    return token[:_ID_BYTES]
