"""Pages of cancels and purges by filter, between the wire and the store."""

from typing import TypeAlias, TypeVar
from uuid import UUID

from duly_core.rpc.requests.new_tasks import parse_task_id
from duly_core.rpc.requests.problem import Problem
from duly_core.tasks.bulk import BulkPage, Place
from duly_frontend.lists.filters import instant
from duly_wire.time_conversion import to_timestamp
from duly_wire.v1 import frontend_pb2

_Request: TypeAlias = frontend_pb2.CancelTasksRequest | frontend_pb2.PurgeTasksRequest
_OF_ATTRIBUTES = "attributes:"
"""With it the place of a call with attributes begins. A Frontend that does not know the filter would change all tasks: it refuses such a place."""
Response = TypeVar("Response", frontend_pb2.CancelTasksResponse, frontend_pb2.PurgeTasksResponse)


def place(request: _Request) -> Place:
    """Where the page of a call begins.

    Raises:
        Problem: it is no place that an answer named.
    """
    after = request.after
    if request.attributes:
        if not after.startswith(_OF_ATTRIBUTES):
            raise Problem(
                "after",
                f"must be {_OF_ATTRIBUTES!r} in the first call with attributes, and next_after of the answer in the calls that follow",
            )
        after = after.removeprefix(_OF_ATTRIBUTES)
    if not after:
        return Place(instant(request, "as_of"))
    return Place(instant(request, "as_of"), parse_task_id(after, "after"))


def to_wire(page: BulkPage, request: _Request, response: Response) -> Response:
    """What a call did, and where the next one goes on."""
    response.count, response.more = page.count, page.more
    if page.place.as_of is not None:
        response.as_of.CopyFrom(to_timestamp(page.place.as_of))
    if page.place.after is not None:
        prefix = _OF_ATTRIBUTES if request.attributes else ""
        response.next_after = f"{prefix}{UUID(bytes=page.place.after)}"
    return response
