"""The part of AsyncClient that sends and reads events."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from duly.events.address import EventAddress
from duly.events.event import EventKey, NewEvent, SentEvent
from duly.transport import error_mapping
from duly.transport.caller import DEFAULT_TIMEOUT
from duly.transport.client_part import ClientPart, only
from duly_wire.time_conversion import to_datetime, to_duration
from duly_wire.v1 import event_addresses_pb2, events_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from duly.errors import DulyError

_MOST_IN_A_CALL = 1_000


class EventCalls(ClientPart):
    """Sends events to the tasks that wait for them."""

    async def send_event(
        self,
        key: str,
        value: Any = None,
        *,
        namespace: str = "",
        event_id: str | None = None,
        timeout: timedelta = DEFAULT_TIMEOUT,
    ) -> SentEvent:
        """Send an event to a key: each task that waits for it receives it, and runs.

            await client.send_event("order-7/approved", {"by": "ann"})

        If no task waits, it is kept (7 days, `frontend.event_retention`) for a task that was scheduled before, and waits later.

        - `value`: bytes, or anything JSON can carry, at most 64 KiB, without attachments.
        - `namespace`: that of the lambdas whose tasks wait; empty: the default one.
        - `event_id`: your own id of it. Events of one key and one id are one event, so a repeat with it does no harm.

        Raises InvalidTaskError, PayloadTooLargeError, QuotaExceededError (1,000 events of the key are kept), PermissionDeniedError,
        EncodingError, UnavailableError (the outcome is unknown: call again with the same `event_id`).
        """
        named = {} if event_id is None else {"event_id": event_id}
        return only(await self.send_events([NewEvent(key, value, namespace, **named)], timeout=timeout))

    async def send_events(
        self, events: Iterable[NewEvent], *, timeout: timedelta = DEFAULT_TIMEOUT
    ) -> list[SentEvent | DulyError]:
        """Send many events; return for each, in order, what came of it, or why it was not sent."""
        caller = self._caller
        messages = [each.to_proto(caller.codec) for each in events]
        sent: list[SentEvent | DulyError] = []
        for first in range(0, len(messages), _MOST_IN_A_CALL):
            request = events_pb2.SendEventsRequest(events=messages[first : first + _MOST_IN_A_CALL])
            response = await caller.call(caller.events.SendEvents, request, timeout)
            sent.extend(map(_sent, response.results))
        return sent

    async def event_address(
        self, key: str, *, title: str = "", namespace: str = "", expires_in: timedelta | None = None
    ) -> EventAddress:
        """Make an address of one use: its holder sends one event to the key, once, without a login.

            address = await client.event_address("order-7/approved", title="Ship order 7?")
            send_mail("ann@example.org", address.url)

        The page has the title, and buttons that send true and false. A program sends any JSON by a POST. Opening the page changes nothing.

        - `title`: what is asked, for people. It is in no log, and everybody with the address sees it.
        - `namespace`: that of the lambdas whose tasks wait; empty: the default one.
        - `expires_in`: 1 second to 365 days; None: 7 days.

        The `url` of what is returned is empty where `frontend.public_url` is not set.
        Raises InvalidTaskError, PermissionDeniedError, QuotaExceededError (the key has 100 addresses that can be used), UnavailableError.
        """
        asked = event_addresses_pb2.NewEventAddress(
            key=key,
            namespace=namespace,
            title=title,
            expires_in=to_duration(expires_in) if expires_in is not None else None,
        )
        caller = self._caller
        request = event_addresses_pb2.CreateEventAddressesRequest(addresses=[asked])
        (result,) = (await caller.call(caller.event_addresses.CreateEventAddresses, request)).results
        error_mapping.check(result)
        return EventAddress(result.token, result.url, to_datetime(result.expires_at))

    async def get_event_key(self, key: str, *, namespace: str = "") -> EventKey:
        """Return what is kept of a key, and which tasks wait for it.

        - `namespace`: that of the lambdas whose tasks wait; empty: the default one.

        Raises InvalidTaskError, PermissionDeniedError.
        """
        caller = self._caller
        request = events_pb2.GetEventKeysRequest(keys=[key], namespace=namespace)
        (found,) = (await caller.call(caller.events.GetEventKeys, request)).keys
        error_mapping.check(found)
        return EventKey.from_proto(found, caller.codec)

    async def event_keys(self, *, namespace: str = "", page_size: int = 100) -> AsyncIterator[EventKey]:
        """Yield the keys of a namespace of which events are kept, or for which tasks wait, by key.

        - `namespace`: empty: the default one, which needs a role for `*`.

        Raises PermissionDeniedError.
        """
        async for page in self.event_key_pages(namespace=namespace, page_size=page_size):
            for key in page:
                yield key

    async def event_key_pages(
        self, *, namespace: str = "", page_size: int = 100
    ) -> AsyncIterator[list[EventKey]]:
        """Yield what `event_keys` yields a page at a time; `page_size` is 1 to 1,000."""
        caller = self._caller
        request = events_pb2.ListEventKeysRequest(namespace=namespace, page_size=page_size)
        async for page in caller.pages(caller.events.ListEventKeys, request):
            yield [EventKey.from_proto(each, caller.codec) for each in page.keys]


def _sent(result: events_pb2.SendEventResult) -> SentEvent | DulyError:
    if result.HasField("error"):
        return error_mapping.from_item(result.error)
    return SentEvent(result.event_id, result.receivers, result.is_repeated)
