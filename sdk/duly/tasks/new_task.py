"""A task to be, as the caller says it, and the receipt for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from duly.callbacks.codec import payload_of, protect
from duly.callbacks.lambda_of import ChildOptions, ScheduleOptions, SessionOptions, name_of
from duly.callbacks.payload import HARD_LIMIT_BYTES, encode
from duly.errors import InvalidTaskError, PayloadTooLargeError
from duly.limits.resource import ResourceNeed, needs_to_fields
from duly.sessions.session import Session, session_of
from duly.tasks.arguments import check_names, wrong_type
from duly.tasks.attributes import attributes_bytes
from duly.tasks.quick_init import quick_init
from duly.tasks.unique import Unique, unique_bytes
from duly.transport.enum_members import member
from duly_wire.enums import OnConflict, Priority
from duly_wire.ids import new_task_id_text
from duly_wire.queue_names import check_domain, check_required, in_domain, requiring
from duly_wire.time_conversion import timestamp_fields, to_duration, to_timestamp
from duly_wire.v1 import frontend_pb2, task_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from duly.attachments.encoded import Encoded
    from duly.callbacks.codec import Codec
    from duly.tasks.attributes import AttributeValue
    from duly.tasks.unique import Debounce


LABELS = ("collection", "fair_key")
"""Texts that go over the wire as they are; empty: there is none."""


@dataclass(frozen=True, slots=True)
class ScheduledTask:
    """The receipt for a scheduled task; accepted wherever a task id is, and `str()` of it is the id."""

    task_id: str
    # False if this very task was there before: the idempotency key had been used for it.
    created: bool
    # What was done because another task has the unique key, whose id this is: IGNORE or REPLACE. None: nobody had it.
    conflict: OnConflict | None = None

    def __str__(self) -> str:
        return self.task_id


@quick_init
@dataclass(frozen=True, slots=True)
class NewTask:
    """One task for `schedule_many`; the fields mean what they mean for `schedule`.

    >>> NewTask("mail.send", {"to": "ann"}, delay=timedelta(minutes=5), collection="marketing").priority.name
    'NORMAL'
    """

    lambda_name: str | Callable[..., Any]
    payload: Any = None
    priority: Priority = Priority.NORMAL
    collection: str = ""
    at: datetime | None = None
    delay: timedelta | None = None
    expires_at: datetime | None = None
    idempotency_key: str | None = None
    session: Session | str | None = None
    resources: Iterable[ResourceNeed | str] = ()
    lambda_version: str = ""
    fair_key: str = ""
    domain: str = ""
    requires: Iterable[str] = ()
    unique: Unique | str | None = None
    debounce: Debounce | None = None
    attributes: Mapping[str, AttributeValue] | None = None

    @property
    def queue(self) -> str:
        """The lambda, with its version, its domain and the labels that it requires. Raises InvalidTaskError for what is none."""
        name = self.lambda_name if isinstance(self.lambda_name, str) else name_of(self.lambda_name)
        if self.lambda_version:
            name = f"{name}@{self.lambda_version}"
        if self.domain:
            name = in_domain(name, domain_of(self.domain))
        return required_by(name, self.requires) if self.requires else name

    def to_proto(self, codec: Codec | None = None) -> frontend_pb2.NewTask:
        """Return the task as it is sent, under an id of its own unless it has an idempotency key.

        Raises InvalidTaskError for a time or a priority that is not one, EncodingError for a payload JSON cannot carry,
        PayloadTooLargeError for one that no lambda may take (it would sink the call it travels in). `codec` encrypts the payload.
        """
        return frontend_pb2.NewTask(**self.to_fields(codec))

    def to_fields(
        self, codec: Codec | None = None, encoded: Encoded | None = None, new_id: str = ""
    ) -> dict[str, Any]:
        """Return the fields of `to_proto`, of which a request makes its message without a copy.

        `new_id` is for a task without an idempotency key; empty: one is made.
        `encoded`: the payload, whose attachments are stored; without it, AttachmentsInsideError is raised for a payload that has some.
        """
        name = self.lambda_name
        if name.__class__ is not str:
            name = name_of(name)
        task_id = (new_id or new_task_id_text()) if self.idempotency_key is None else ""
        payload, encoding = encode(self.payload) if encoded is None else (encoded.data, encoded.encoding)
        if codec is not None and encoding != task_pb2.ENCODING_ATTACHMENT:
            identity = task_id or f"key {self.idempotency_key}"
            payload, encoding = protect(codec, (payload, encoding), payload_of(name), identity)
        check_size(payload)
        fields: dict[str, Any] = {
            "lambda": self.queue if self.lambda_version or self.domain or self.requires else name,
            "payload": payload,
            "payload_encoding": encoding,
            "priority": self.priority
            if self.priority.__class__ is Priority
            else member("priority", self.priority, Priority),
        }
        if self.collection or self.fair_key:
            for label in LABELS:
                if text := getattr(self, label):
                    if not isinstance(text, str):
                        raise wrong_type(label, text, "a text")
                    fields[label] = text
        if self.at is not None or self.delay is not None:
            fields |= when_fields(self.at, self.delay)
            if self.delay is not None and self.delay < timedelta(0):
                raise InvalidTaskError(
                    "delay must not be negative: leave it out to run the task now", "delay"
                )
        if self.expires_at is not None:
            fields["expires_at"] = to_timestamp(aware("expires_at", self.expires_at))
        if self.idempotency_key is None:
            # Makes the SDK's retries safe: a request that arrives twice finds its own ids taken.
            fields["task_id"] = task_id
        else:
            fields["idempotency_key"] = _key(self.idempotency_key)
        if self.session is not None:
            fields["session"] = session_of(self.session).to_fields()
        if self.resources or self.unique is not None or self.debounce is not None or self.attributes:
            fields |= self._serialized_fields()
        if encoded is not None:
            fields["attachments"] = encoded.serialized_uses()
        return fields

    def _serialized_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self.resources:
            needs = task_pb2.ResourceNeeds(needs=needs_to_fields(self.resources))  # type: ignore[arg-type]
            fields["resources"] = needs.SerializeToString()
        if self.unique is not None or self.debounce is not None:
            fields["unique"] = unique_bytes(self.unique, self.debounce)
        if self.attributes:
            fields["attributes"] = attributes_bytes(self.attributes)
        return fields


def domain_of(domain: object) -> str:
    """Return a domain as queues have it: empty for `default`. Raises InvalidTaskError."""
    if not isinstance(domain, str):
        raise wrong_type("domain", domain, "a text")
    try:
        return check_domain(domain)
    except ValueError as error:
        raise InvalidTaskError(f"domain: {error}", "domain") from None


def required_by(name: str, labels: object) -> str:
    """Return the queue of tasks that require labels, for the queue of a lambda. Raises InvalidTaskError."""
    try:
        return requiring(name, check_required(labels))
    except ValueError as error:
        raise InvalidTaskError(f"requires: {error}", "requires") from None


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise wrong_type("idempotency_key", key, "a text")
    if not key:
        raise InvalidTaskError("an idempotency key must not be empty", "idempotency_key")
    return key


def new_task(lambda_name: str | Callable[..., Any], payload: Any, options: SessionOptions) -> NewTask:
    """Return a task of a graph. Raises InvalidTaskError for an option that only a client's `schedule` has."""
    check_names(options, SessionOptions.__optional_keys__)
    return NewTask(name_of(lambda_name), payload, **options)


def child_task(lambda_name: str | Callable[..., Any], payload: Any, options: ChildOptions) -> NewTask:
    """Return a task that a callback schedules. Raises InvalidTaskError for an option that it cannot have."""
    if "debounce" in options:
        raise InvalidTaskError(
            "a task that a callback schedules cannot be debounced: use a client in the callback", "debounce"
        )
    check_names(options, ChildOptions.__optional_keys__)
    new = NewTask(name_of(lambda_name), payload, **options)
    if isinstance(new.unique, Unique) and new.unique.on_conflict is OnConflict.REPLACE:
        raise InvalidTaskError(
            "a task that a callback schedules replaces none: use IGNORE or REJECT, or a client in the callback",
            "unique.on_conflict",
        )
    if new.unique is not None and new.session is not None:
        raise InvalidTaskError("give either unique or session, or use a client in the callback", "session")
    return new


def scheduled_task(lambda_name: str | Callable[..., Any], payload: Any, options: dict[str, Any]) -> NewTask:
    """Return a task of a client's `schedule`. Raises InvalidTaskError for an unknown option."""
    try:
        return NewTask(name_of(lambda_name), payload, **options)
    except TypeError:
        check_names(options, ScheduleOptions.__optional_keys__)
        raise


def check_size(payload: bytes) -> None:
    """Raise PayloadTooLargeError for a payload that no lambda may take."""
    if len(payload) > HARD_LIMIT_BYTES:
        raise PayloadTooLargeError(
            f"payload: {len(payload):,} bytes exceed the {HARD_LIMIT_BYTES:,} that any lambda takes: put large data elsewhere and "
            "send its address"
        )


def when_fields(at: datetime | None, delay: timedelta | None) -> dict[str, Any]:
    """Return the field of a message that says when a task runs. Raises InvalidTaskError."""
    if at is not None and delay is not None:
        raise InvalidTaskError("give either at or delay, not both", "at")
    if at is not None:
        return {"scheduled_at": timestamp_fields(aware("at", at))}
    if delay is None:
        return {}
    if not isinstance(delay, timedelta):
        raise InvalidTaskError(f"delay must be a timedelta, not {type(delay).__name__}", "delay")
    return {"delay": to_duration(delay)}


def aware(name: str, moment: object) -> datetime:
    """Return an instant that has a time zone; raise InvalidTaskError for anything else, naming the field."""
    if not isinstance(moment, datetime):
        raise InvalidTaskError(f"{name} must be a datetime, not {type(moment).__name__}", name)
    if moment.utcoffset() is None:
        raise InvalidTaskError(
            f"{name} has no time zone, so it is not an instant: use datetime.now(UTC) or moment.astimezone()",
            name,
        )
    return moment
