"""EventAddressService: makes addresses of one use, tells what they ask, and sends their events."""

import json
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from uuid import UUID

from duly_core.access.current import require, restriction, scheduler
from duly_core.access.roles import Action
from duly_core.attachments.store import claimed_lambda
from duly_core.config.live_sections import LiveFrontendSettings
from duly_core.errors import InvalidRequestError
from duly_core.event_addresses import store as store_addresses
from duly_core.event_addresses.store import LONGEST, MOST_OF_KEY, SHORTEST, TITLE_LIMIT, NewAddress, State
from duly_core.events.rules import MOST_KEPT, VALUE_LIMIT
from duly_core.events.store import EventKeyId
from duly_core.lambdas.names import namespace_of
from duly_core.postgres.notifications import Notifier
from duly_core.rpc.requests.checks import check_count, check_text, read_duration
from duly_core.rpc.requests.new_tasks import parse_task_id
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
_CLAIM_TOKEN_BYTES = 16

_STATES = {
    State.OPEN: event_addresses_pb2.EVENT_ADDRESS_STATE_OPEN,
    State.USED: event_addresses_pb2.EVENT_ADDRESS_STATE_USED,
    State.OVER: event_addresses_pb2.EVENT_ADDRESS_STATE_OVER,
    State.UNKNOWN: event_addresses_pb2.EVENT_ADDRESS_STATE_UNKNOWN,
}
_NO_SUCH_CLAIM = Problem(
    "claim_token",
    "the task is not held under this token: its claim was lost, or the task has ended",
    task_pb2.ERROR_CODE_NOT_FOUND,
)
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
        try:
            claim, namespace = await self._claim(request)
        except Problem as problem:
            none = event_addresses_pb2.CreateEventAddressResult(error=problem.to_wire())
            return event_addresses_pb2.CreateEventAddressesResponse(results=[none] * len(request.addresses))
        asked = check_each(_reader(claim, namespace), request.addresses)
        valid = [each for each in asked if not isinstance(each, Problem)]
        made: Sequence[store_addresses.Made | None] = []
        if valid:
            made = await store_addresses.create(self._stores.writes, valid, scheduler(), claim)
        refused = await self._refused(claim) if None in made else _TOO_MANY
        answers = iter(made)
        return event_addresses_pb2.CreateEventAddressesResponse(
            results=[
                event_addresses_pb2.CreateEventAddressResult(error=each.to_wire())
                if isinstance(each, Problem)
                else self._made(next(answers), refused)
                for each in asked
            ]
        )

    async def _claim(
        self, request: event_addresses_pb2.CreateEventAddressesRequest
    ) -> tuple[store_addresses.Claim | None, str]:
        """Return the right of a callback, and the namespace of its keys; None: a client makes addresses.

        Raises:
            Problem: the task is not held under this token.
            InvalidRequestError: the token is none.
            PermissionDeniedError: the caller may not run the task.
        """
        token = request.claim_token
        if not token:
            if request.task_id:
                raise InvalidRequestError("task_id", "needs the claim_token; leave out both as a client")
            return None, ""
        if len(token) != _CLAIM_TOKEN_BYTES:
            raise InvalidRequestError("claim_token", f"must be {_CLAIM_TOKEN_BYTES} bytes, or be left out")
        task_id = parse_task_id(request.task_id)
        name = await claimed_lambda(self._stores.reads, task_id, token)
        if name is None:
            raise _NO_SUCH_CLAIM
        require(Action.RUN, name)
        return store_addresses.Claim(UUID(bytes=task_id), UUID(bytes=token)), namespace_of(name)

    async def _refused(self, claim: store_addresses.Claim | None) -> Problem:
        """Return why an address was not made: the claim may be lost since it was looked at."""
        if claim is None:
            return _TOO_MANY
        held = await claimed_lambda(self._stores.reads, claim.task_id.bytes, claim.token.bytes)
        return _NO_SUCH_CLAIM if held is None else _TOO_MANY

    def _made(
        self, made: store_addresses.Made | None, refused: Problem
    ) -> event_addresses_pb2.CreateEventAddressResult:
        if made is None:
            return event_addresses_pb2.CreateEventAddressResult(error=refused.to_wire())
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


def _reader(
    claim: store_addresses.Claim | None, namespace: str
) -> Callable[[event_addresses_pb2.NewEventAddress], NewAddress]:
    """Return what checks addresses: a callback's are of its namespace, and of keys that its worker's patterns cover."""
    scope, runs = restriction(Action.SEND), restriction(Action.RUN)

    def read(asked: event_addresses_pb2.NewEventAddress) -> NewAddress:
        key = read_key(asked.namespace, asked.key)
        if claim is not None and asked.namespace != namespace:
            raise Problem("namespace", f"must be {namespace!r}, that of the task's lambda")
        if claim is None or not (runs is None or runs.covers_event_key(key.namespace, key.key)):
            check_event_key(scope, key.namespace, key.key)
        return _read(asked, key)

    return read


def _read(asked: event_addresses_pb2.NewEventAddress, key: EventKeyId) -> NewAddress:
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
