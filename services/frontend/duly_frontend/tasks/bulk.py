"""Pages of cancels and purges by filter, between the wire and the store."""

from typing import TypeAlias, TypeVar
from uuid import UUID

from duly_core.rpc.requests.new_tasks import parse_task_id
from duly_core.tasks.bulk import BulkPage, Place
from duly_frontend.lists.filters import instant
from duly_wire.time_conversion import to_timestamp
from duly_wire.v1 import frontend_pb2

_Request: TypeAlias = frontend_pb2.CancelTasksRequest | frontend_pb2.PurgeTasksRequest
Response = TypeVar("Response", frontend_pb2.CancelTasksResponse, frontend_pb2.PurgeTasksResponse)


def place(request: _Request) -> Place:
    """Where the page of a call begins.

    Raises:
        Problem: it is no place that an answer named.
    """
    if not request.after:
        return Place(instant(request, "as_of"))
    return Place(instant(request, "as_of"), parse_task_id(request.after, "after"))


def to_wire(page: BulkPage, response: Response) -> Response:
    """What a call did, and where the next one goes on."""
    response.count, response.more = page.count, page.more
    if page.place.as_of is not None:
        response.as_of.CopyFrom(to_timestamp(page.place.as_of))
    if page.place.after is not None:
        response.next_after = str(UUID(bytes=page.place.after))
    return response
