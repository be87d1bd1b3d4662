"""EventService: sends events, and reads those that are kept."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

from duly_core.access.current import current_access, current_caller, denied, restriction
from duly_core.access.roles import Action
from duly_core.config.live_sections import LiveFrontendSettings
from duly_core.events import store as store_events
from duly_core.events.store import NewEvent, SentAll
from duly_core.lambdas.patterns import pattern_of_namespace
from duly_core.postgres.notifications import Notifier
from duly_core.process import failpoints
from duly_core.rpc.requests.checks import check_count, page_size
from duly_core.rpc.requests.names import check_namespace
from duly_core.rpc.requests.problem import Problem, check_each
from duly_core.rpc.stubs import Context
from duly_core.traffic.group_commit import GroupCommit
from duly_frontend import events
from duly_frontend.lists import page_token
from duly_frontend.sent_events import wire
from duly_frontend.stores import FrontendStores
from duly_wire.v1 import events_pb2, events_pb2_grpc

_MOST_SENT = 1_000
_MOST_READ = 100
_SHOWN = 100
_MOST_AT_ONCE = 500
_WEIGHTY = 4 * 1024
"""Bytes of value that count for another event in a group."""
_MOST_PAGES_AT_ONCE = 4
"""Transactions that give events to crowds: sends go on beside them."""


class EventServicer(events_pb2_grpc.EventServiceServicer):
    """Answers each event for itself; one with an error has changed nothing."""

    def __init__(
        self, stores: FrontendStores, notifier: Notifier, live: Callable[[], LiveFrontendSettings]
    ) -> None:
        self._stores = stores
        self._notifier = notifier
        self._live = live
        self._send = GroupCommit(self._send_group, max_items=_MOST_AT_ONCE, weigh=_weight)
        self._pages = asyncio.Semaphore(_MOST_PAGES_AT_ONCE)

    async def SendEvents(  # noqa: N802 (the wire's name)
        self, request: events_pb2.SendEventsRequest, context: Context
    ) -> events_pb2.SendEventsResponse:
        check_count("events", len(request.events), _MOST_SENT)
        asked = wire.read_new(request.events)
        valid = [each for each in asked if not isinstance(each, Problem)]
        parts = await self._send(valid, context.time_remaining(), current_caller()) if valid else []
        sent = store_events.join(parts)
        if sent.unfinished:
            # not in the group: a crowd makes nobody wait but who sends to it
            sent = await store_events.finish(self._stores.writes, sent, self._tell, self._pages)
        events.events_sent(sent.answers)
        return events_pb2.SendEventsResponse(results=wire.results(asked, sent.answers))

    async def _send_group(self, asked: list[NewEvent]) -> list[SentAll]:
        """Store events, and give them to the first page of the tasks that wait; return what came of each."""
        store, kept_for = self._stores.writes, self._live().event_retention
        async with (
            failpoints.around("frontend.send_events"),
            store.connection() as connection,
            connection.transaction(),
        ):
            done = await store_events.send_within(connection, asked, kept_for)
        self._tell(done.due)
        return store_events.split(done, asked)

    def _tell(self, due: Collection[str]) -> None:
        if due:
            self._notifier.due_in(timedelta(), due, len(due))

    async def GetEventKeys(  # noqa: N802
        self, request: events_pb2.GetEventKeysRequest, _context: Context
    ) -> events_pb2.GetEventKeysResponse:
        check_count("keys", len(request.keys), _MOST_READ)
        namespace = check_namespace("namespace", request.namespace)
        scope, payloads = restriction(Action.READ), restriction(Action.READ_PAYLOAD)
        if scope is not None and not scope.covers_namespace(namespace):
            raise denied(current_access(), Action.READ, pattern_of_namespace(namespace))
        withheld = payloads is not None and not payloads.covers_namespace(namespace)
        asked = check_each(lambda key: wire.read_key(namespace, key), request.keys)
        known = {each for each in asked if not isinstance(each, Problem)}
        found = await store_events.read_keys(self._stores.reads, known, _SHOWN)
        return events_pb2.GetEventKeysResponse(
            keys=[
                events_pb2.EventKey(error=each.to_wire())
                if isinstance(each, Problem)
                else wire.key_to_wire(found[each], scope, withheld=withheld)
                for each in asked
            ]
        )

    async def ListEventKeys(  # noqa: N802
        self, request: events_pb2.ListEventKeysRequest, _context: Context
    ) -> events_pb2.ListEventKeysResponse:
        size = page_size(request.page_size)
        namespace = check_namespace("namespace", request.namespace)
        scope = restriction(Action.READ)
        if scope is not None and not scope.covers_namespace(namespace):
            raise denied(current_access(), Action.READ, pattern_of_namespace(namespace))
        after = page_token.read_name(request.page_token)
        async with self._stores.listing("ListEventKeys") as lists:
            found = await store_events.list_keys(lists, namespace, after, size + 1)
        token = page_token.write_name(found[size - 1][0].key) if len(found) > size else ""
        return events_pb2.ListEventKeysResponse(
            keys=[
                events_pb2.EventKey(key=key.key, namespace=key.namespace, event_count=count)
                for key, count in found[:size]
            ],
            next_page_token=token,
        )


def _weight(asked: Sequence[NewEvent]) -> int:
    return len(asked) + sum(len(each.value) for each in asked) // _WEIGHTY
