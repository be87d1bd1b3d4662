"""Addresses of one use that a callback makes, by a call that its worker brings to a Frontend. Free of gRPC."""

from __future__ import annotations

from datetime import timedelta

from duly.attachments.service import AttachmentService, Method, check_item
from duly.errors import AttachmentsOffError, InvalidTaskError, UnavailableError
from duly.events.address import EventAddress
from duly.events.waits import check_keys, namespace_of
from duly_wire.time_conversion import to_datetime, to_duration
from duly_wire.v1 import event_addresses_pb2

CREATE = Method("CreateEventAddresses", event_addresses_pb2.CreateEventAddressesResponse)
"""Who brings it sets the task and the token of its claim."""
_TITLE_LIMIT_BYTES = 2_048
_SHORTEST, _LONGEST = timedelta(seconds=1), timedelta(days=365)


def make_address(
    service: AttachmentService, lambda_name: str, key: str, title: str, expires_in: timedelta | None
) -> EventAddress:
    """Make one for a task of this lambda. Raises what `TaskContext.event_address` raises."""
    check_keys((key,))
    if len(title.encode()) > _TITLE_LIMIT_BYTES:
        raise InvalidTaskError(f"title: must have at most {_TITLE_LIMIT_BYTES:,} bytes", "title")
    if expires_in is not None and not _SHORTEST <= expires_in <= _LONGEST:
        raise InvalidTaskError(
            f"expires_in: must be between 1 s and {_LONGEST.days} days, not {expires_in}", "expires_in"
        )
    asked = event_addresses_pb2.NewEventAddress(
        key=key,
        namespace=namespace_of(lambda_name),
        title=title,
        expires_in=to_duration(expires_in) if expires_in is not None else None,
    )
    request = event_addresses_pb2.CreateEventAddressesRequest(addresses=[asked])
    try:
        (result,) = service.call(CREATE, request).results
    except AttachmentsOffError as error:  # no Frontend, or one of an older release
        raise UnavailableError(f"no address could be made: {error}") from error
    check_item(result)
    return EventAddress(result.token, result.url, to_datetime(result.expires_at))
