"""Between the wire's events and the store's shapes; checks what it reads."""

from collections.abc import Callable, Sequence
from uuid import UUID, uuid4

from duly_core.access.current import restriction, scheduler
from duly_core.access.grants import Scope
from duly_core.access.roles import Action
from duly_core.events.rules import KEY_LIMIT, MOST_KEPT, VALUE_LIMIT
from duly_core.events.store import EventKey, EventKeyId, KeptEvent, NewEvent, Sent, Waiter
from duly_core.rpc.requests.checks import check_text
from duly_core.rpc.requests.names import check_namespace
from duly_core.rpc.requests.new_tasks import ENCODINGS, has_key_name
from duly_core.rpc.requests.problem import Problem, check_each
from duly_core.tasks.task import Encoding
from duly_frontend.access.reach import check_event_key
from duly_wire.v1 import events_pb2, task_pb2

_FULL = Problem(
    "key",
    f"{MOST_KEPT:,} events of this key are kept, and no further one is: use a key for each thing that is waited for",
    task_pb2.ERROR_CODE_QUOTA_EXCEEDED,
)


def read_new(events: Sequence[events_pb2.NewEvent]) -> list[NewEvent | Problem]:
    """Check the events of a request, each for itself."""
    return check_each(_reader(restriction(Action.SEND), scheduler()), events)


def _reader(scope: Scope | None, sent_by: str | None) -> Callable[[events_pb2.NewEvent], NewEvent]:
    def read(asked: events_pb2.NewEvent) -> NewEvent:
        key = read_key(asked.namespace, asked.key)
        check_event_key(scope, key.namespace, key.key)
        check_text("event_id", asked.event_id, KEY_LIMIT)
        encoding = ENCODINGS.get(asked.value_encoding)
        if encoding is None or encoding is Encoding.ATTACHMENT:
            raise Problem("value_encoding", "must be ENCODING_JSON, ENCODING_RAW or ENCODING_ENCRYPTED")
        if len(asked.value) > VALUE_LIMIT:
            raise Problem(
                "value",
                f"{len(asked.value):,} bytes exceed {VALUE_LIMIT:,}: put it elsewhere, and send its address",
                task_pb2.ERROR_CODE_PAYLOAD_TOO_LARGE,
            )
        if encoding is Encoding.ENCRYPTED and not has_key_name(asked.value):
            raise Problem(
                "value",
                "ENCODING_ENCRYPTED needs the bytes D0 01, the length of the key's name, the name, and the content",
            )
        return NewEvent(key, asked.event_id or str(uuid4()), asked.value, encoding, sent_by)

    return read


def read_key(namespace: str, key: str) -> EventKeyId:
    """Check a key and its namespace.

    Raises:
        Problem: names the field and the fix.
    """
    check_namespace("namespace", namespace)
    check_text("key", key, KEY_LIMIT, least=1, remedy=": use a hash of a longer key")
    return EventKeyId(namespace, key)


def results(asked: Sequence[NewEvent | Problem], answers: Sequence[Sent]) -> list[events_pb2.SendEventResult]:
    """One result for each event of a request, in its order; `answers` are of those that are no Problem."""
    left = iter(answers)
    return [
        events_pb2.SendEventResult(error=each.to_wire())
        if isinstance(each, Problem)
        else _result(each, next(left))
        for each in asked
    ]


def _result(asked: NewEvent, answer: Sent) -> events_pb2.SendEventResult:
    if answer.is_refused:
        return events_pb2.SendEventResult(event_id=asked.event_id, error=_FULL.to_wire())
    return events_pb2.SendEventResult(
        event_id=asked.event_id, receivers=answer.receivers, is_repeated=answer.is_repeated
    )


def key_to_wire(found: EventKey, scope: Scope | None, *, withheld: bool) -> events_pb2.EventKey:
    """Return what the caller may see of a key."""
    return events_pb2.EventKey(
        key=found.key.key,
        namespace=found.key.namespace,
        events=[_event(each, withheld=withheld) for each in found.events],
        waiters=[
            _waiter(each)
            for each in found.waiters
            if scope is None or scope.reaches(each.lambda_name, each.scheduled_by)
        ],
    )


def _event(event: KeptEvent, *, withheld: bool) -> events_pb2.Event:
    message = events_pb2.Event(event_id=event.event_id, sent_by=event.sent_by or "", value_withheld=withheld)
    if not withheld:
        message.value = event.value
        message.value_encoding = task_pb2.Encoding.ValueType(event.encoding)
    message.sent_at.FromDatetime(event.sent_at)
    message.expires_at.FromDatetime(event.expires_at)
    return message


def _waiter(waiter: Waiter) -> events_pb2.EventWaiter:
    message = events_pb2.EventWaiter(task_id=str(UUID(bytes=waiter.task_id)), needs_all=waiter.needs_all)
    setattr(message, "lambda", waiter.lambda_name)
    message.until_at.FromDatetime(waiter.until_at)
    return message
