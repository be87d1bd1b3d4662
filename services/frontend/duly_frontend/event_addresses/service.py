"""EventAddressService: makes addresses of one use, tells what they ask, and sends their events."""

import json
from collections.abc import Callable, Collection
from datetime import timedelta

from duly_core.access.current import restriction, scheduler
from duly_core.access.grants import Scope
from duly_core.access.roles import Action
from duly_core.config.live_sections import LiveFrontendSettings
from duly_core.event_addresses import store as store_addresses
from duly_core.event_addresses.store import LONGEST, MOST_OF_KEY, SHORTEST, TITLE_LIMIT, NewAddress, State
from duly_core.events.rules import MOST_KEPT, VALUE_LIMIT
from duly_core.postgres.notifications import Notifier
from duly_core.rpc.requests.checks import check_count, check_text, read_duration
from duly_core.rpc.requests.problem import Problem, check_each
from duly_core.rpc.stubs import Context
from duly_core.tasks.task import Encoding
from duly_frontend.access.reach import check_event_key
from duly_frontend.sent_events.wire import read_key
from duly_frontend.stores import FrontendStores
from duly_wire.time_conversion import to_timestamp
from duly_wire.v1 import event_addresses_pb2, event_addresses_pb2_grpc, task_pb2

_MOST = 100
_LIFETIME = timedelta(days=7)
_TOKEN_LIMIT = 128

_STATES = {
    State.OPEN: event_addresses_pb2.EVENT_ADDRESS_STATE_OPEN,
    State.USED: event_addresses_pb2.EVENT_ADDRESS_STATE_USED,
    State.OVER: event_addresses_pb2.EVENT_ADDRESS_STATE_OVER,
    State.UNKNOWN: event_addresses_pb2.EVENT_ADDRESS_STATE_UNKNOWN,
}
_TOO_MANY = Problem(
    "key",
    f"the key has {MOST_OF_KEY} addresses that can be used: use a key for each thing that is waited for",
    task_pb2.ERROR_CODE_QUOTA_EXCEEDED,
)
_FULL = Problem(
    "token",
    f"{MOST_KEPT:,} events of its key are kept, and no further one is; the address can be used again",
    task_pb2.ERROR_CODE_QUOTA_EXCEEDED,
)


class EventAddressServicer(event_addresses_pb2_grpc.EventAddressServiceServicer):
    """Only the making of addresses needs a role: the token is the right to use one."""

    def __init__(
        self,
        stores: FrontendStores,
        notifier: Notifier,
        live: Callable[[], LiveFrontendSettings],
        public_url: str = "",
    ) -> None:
        """Make one; `public_url` is where people reach the console."""
        self._stores = stores
        self._notifier = notifier
        self._live = live
        self._public_url = public_url.rstrip("/")

    async def CreateEventAddresses(  # noqa: N802 (the wire's name)
        self, request: event_addresses_pb2.CreateEventAddressesRequest, _context: Context
    ) -> event_addresses_pb2.CreateEventAddressesResponse:
        check_count("addresses", len(request.addresses), _MOST)
        scope = restriction(Action.SEND)
        asked = check_each(lambda each: _read(each, scope), request.addresses)
        valid = [each for each in asked if not isinstance(each, Problem)]
        made = iter(await store_addresses.create(self._stores.writes, valid, scheduler()) if valid else [])
        return event_addresses_pb2.CreateEventAddressesResponse(
            results=[
                event_addresses_pb2.CreateEventAddressResult(error=each.to_wire())
                if isinstance(each, Problem)
                else self._made(next(made))
                for each in asked
            ]
        )

    def _made(self, made: store_addresses.Made | None) -> event_addresses_pb2.CreateEventAddressResult:
        if made is None:
            return event_addresses_pb2.CreateEventAddressResult(error=_TOO_MANY.to_wire())
        url = f"{self._public_url}/events/{made.token}" if self._public_url else ""
        return event_addresses_pb2.CreateEventAddressResult(
            token=made.token, url=url, expires_at=to_timestamp(made.expires_at)
        )

    async def GetEventAddress(  # noqa: N802
        self, request: event_addresses_pb2.GetEventAddressRequest, _context: Context
    ) -> event_addresses_pb2.GetEventAddressResponse:
        check_text("token", request.token, _TOKEN_LIMIT)
        found = await store_addresses.look(self._stores.reads, request.token)
        answer = event_addresses_pb2.GetEventAddressResponse(state=_STATES[found.state], title=found.title)
        if found.expires_at is not None:
            answer.expires_at.CopyFrom(to_timestamp(found.expires_at))
        return answer

    async def UseEventAddress(  # noqa: N802
        self, request: event_addresses_pb2.UseEventAddressRequest, _context: Context
    ) -> event_addresses_pb2.UseEventAddressResponse:
        try:
            check_text("token", request.token, _TOKEN_LIMIT)
            _check_value(request.value)
            kept_for = self._live().event_retention
            used = await store_addresses.use(
                self._stores.writes, request.token, request.value, Encoding.JSON, kept_for, self._tell
            )
        except store_addresses.TooManyKeptError:
            return event_addresses_pb2.UseEventAddressResponse(error=_FULL.to_wire())
        except Problem as problem:
            return event_addresses_pb2.UseEventAddressResponse(error=problem.to_wire())
        receivers = used.sent.answers[0].receivers if used.sent else 0
        return event_addresses_pb2.UseEventAddressResponse(state=_STATES[used.state], receivers=receivers)

    def _tell(self, due: Collection[str]) -> None:
        self._notifier.due_in(timedelta(), due, len(due))


def _read(asked: event_addresses_pb2.NewEventAddress, scope: Scope | None) -> NewAddress:
    key = read_key(asked.namespace, asked.key)
    check_event_key(scope, key.namespace, key.key)
    check_text("title", asked.title, TITLE_LIMIT)
    lifetime = _LIFETIME
    if asked.HasField("expires_in"):
        lifetime = read_duration("expires_in", asked.expires_in, LONGEST, least=SHORTEST)
    return NewAddress(key, asked.title, lifetime)


def _check_value(value: bytes) -> None:
    """Check that a value, which strangers send, is JSON.

    Raises:
        Problem: it is not.
    """
    if len(value) > VALUE_LIMIT:
        raise Problem(
            "value", f"must have at most {VALUE_LIMIT:,} bytes", task_pb2.ERROR_CODE_PAYLOAD_TOO_LARGE
        )
    try:
        json.loads(value, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Problem("value", "must be JSON") from None


def _no_constant(name: str) -> None:
    raise ValueError(name)
