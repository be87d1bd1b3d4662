"""Receipts that know what the result of their task is read into, and tasks whose result is read so."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, cast

from duly.callbacks.codec import EncryptedPayload
from duly.callbacks.lambda_of import Result, result_type_of
from duly.callbacks.validation import reader_for
from duly.errors import EncodingError, PayloadError, RegistrationError
from duly.tasks.new_task import ScheduledTask
from duly.tasks.task import Task
from duly_wire.enums import TaskStatus

if TYPE_CHECKING:
    from duly.callbacks.validation import Reader


@dataclasses.dataclass(frozen=True, slots=True)
class Handle(ScheduledTask, Generic[Result]):
    """The receipt for a task whose result has a type: that of its callback, or `result_type` of `schedule`.

    greeted = client.wait(client.schedule(greet, Greeting("Ada"))).result  # what `greet` returns
    """

    # What the result is read into; None: it stays JSON.
    result_type: Any = dataclasses.field(default=None, compare=False, repr=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TypedTask(Task, Generic[Result]):
    """A task that was read by a `Handle`: its result is of the type that the handle says."""

    # What the result is read into.
    result_type: Any = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def result(self) -> Result:
        """What the callback returned, read into its type. None, whatever the type, before SUCCESS and after another end.

        Raises EncodingError if it does not fit: another version of the callback may have returned it. DecryptionError.
        """
        # super() has no cell here: a dataclass with slots is made twice
        value = Task.result.fget(self)  # type: ignore[attr-defined]
        if self.status is TaskStatus.SUCCESS and not isinstance(value, EncryptedPayload):
            try:
                value = _reader(self.result_type)(value)
            except PayloadError as error:
                raise EncodingError(
                    f"the result of task {self.task_id} is no {self.result_type!r}: {error}"
                ) from error
        return cast("Result", value)


def typed_task(task: Task, handle: object) -> Task:
    """Return a task as the holder of this handle sees it: with a typed result, if the handle says a type."""
    if not isinstance(handle, Handle) or handle.result_type is None:
        return task
    said = {field.name: getattr(task, field.name) for field in dataclasses.fields(Task)}
    return TypedTask(**said, result_type=handle.result_type)


def handle_of(
    receipt: ScheduledTask, lambda_name: str | Callable[..., Any], result_type: Any
) -> ScheduledTask:
    """Return the handle for a receipt: the result is read into `result_type`, or else into what the callback says it returns."""
    if result_type is None:
        if isinstance(lambda_name, str):
            return receipt
        result_type = _readable(result_type_of(lambda_name))
    return Handle(receipt.task_id, receipt.created, receipt.conflict, result_type)


def check_result_type(result_type: Any) -> None:
    """Raise RegistrationError for a type that JSON cannot be read into: before anything is scheduled."""
    if result_type is not None:
        _reader(result_type)


def _readable(annotation: Any) -> Any:
    """Return what a callback says it returns; None if it says nothing, or what cannot be read from JSON: that stays as it is."""
    if annotation is None:
        return None
    try:
        _reader(annotation)
    except (RegistrationError, TypeError):
        return None
    return annotation


@lru_cache(maxsize=256)
def _reader(result_type: Any) -> Reader:
    return reader_for(type(None) if result_type is None else result_type)
