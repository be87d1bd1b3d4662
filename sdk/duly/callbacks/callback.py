"""A registered callback: what was found out about a function once, so that no task has to."""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from duly.callbacks.payload import SentPayload, decode
from duly.callbacks.read_records import resolve_hints
from duly.callbacks.validation import Reader, reader_for
from duly.context import TaskContext
from duly.errors import PayloadError, RegistrationError, describe
from duly.lambdas.batch import Batch
from duly_wire.v1 import task_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

    from duly.callbacks.codec import Codec
    from duly.callbacks.hooks import Hook
    from duly.callbacks.payload import OriginOf
    from duly.lambdas.policy import Policy

_NAME = re.compile(r"(?!default/)(?=.{1,128}\Z)(?:[a-z0-9][a-z0-9_.-]*/)?[a-z0-9][a-z0-9_.-]*")
_CONTEXT_NAMES = ("ctx", "context")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Callback:
    """A function, the lambda it serves, and how it is to be called."""

    name: str
    function: Callable[..., Any]
    policy: Policy
    raw: bool
    # Reads decoded JSON into what the first parameter declares; None: the payload is taken as it is.
    reader: Reader | None
    takes_payload: bool
    takes_context: bool
    codec: Codec | None = None
    as_sent: bool = False
    """Whether it takes a SentPayload: what hands payloads on, in whatever form they came."""
    keep_output: bool = True
    """Whether what it prints and logs is kept."""
    batch: Batch | None = None
    """How many tasks one call takes; None: one."""
    hooks: Sequence[Hook] = field(default=(), compare=False)
    """Those of the application, also those that it declares later."""

    def read(self, data: bytes, encoding: int, origin: OriginOf | None = None) -> Any:
        """Return the payload as the callback wants it; raise PayloadError if it is not as declared.

        `origin` says what reads the attachments in it.
        """
        if not self.takes_payload:
            return None
        if self.as_sent:
            decode(data, encoding)  # who reads it next may not look closely
            return SentPayload(data, encoding)
        if self.raw:
            if encoding != task_pb2.ENCODING_RAW:
                raise PayloadError("expected bytes, got JSON: schedule it with a bytes payload")
            return data
        if encoding == task_pb2.ENCODING_RAW:
            raise PayloadError("expected JSON, got bytes: the callback does not say raw=True")
        value = decode(data, encoding, origin)
        if self.reader is None:
            return value
        try:
            return self.reader(value)
        except PayloadError:
            raise
        except BaseException as error:  # an owner's own validator may raise anything, SystemExit too
            raise PayloadError(f"could not be checked: {describe(error)}") from error

    def call(self, payload: object, context: TaskContext | Sequence[TaskContext]) -> Any:
        """Call the function with as many arguments as it takes; a coroutine is returned, not run.

        One with `batch` takes a list of each.
        """
        if self.takes_context:
            return self.function(payload, context)
        return self.function(payload) if self.takes_payload else self.function()


def checked_name(name: object) -> str:
    """Return the name of a lambda. Raises RegistrationError if none can have it."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise RegistrationError(
            f"{name!r} is not a lambda name: 1 to 128 of a-z, 0-9, '_', '.', '-', the first a letter or digit; NAMESPACE/ may "
            "stand before it"
        )
    return name


def make_callback(
    name: object,
    function: Any,
    policy: Policy,
    *,
    raw: bool,
    codec: Codec | None = None,
    keep_output: bool = True,
    batch: Batch | None = None,
) -> Callback:
    """Look at a function once; raise RegistrationError, naming the lambda, for what cannot work."""
    name = checked_name(name)
    try:
        _check_function(function)
        parameters = _positional_parameters(function)
        annotation = _payload_annotation(function, parameters[0]) if parameters else Any
        if batch is not None:
            annotation = _item_annotation(batch, parameters, annotation)
        _check_raw(raw=raw, wants_bytes=annotation is bytes)
        return Callback(
            name=name,
            function=function,
            policy=policy,
            raw=raw,
            reader=None if raw or annotation is Any or annotation is object else reader_for(annotation),
            takes_payload=bool(parameters),
            takes_context=len(parameters) > 1,
            codec=codec,
            keep_output=keep_output,
            batch=batch,
        )
    except RegistrationError as error:
        raise RegistrationError(f"lambda {name!r}: {error}") from error.__cause__


def _check_function(function: object) -> None:
    if not callable(function) or isinstance(function, type):
        raise RegistrationError(f"a callback must be a function, not {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise RegistrationError("the callback contains yield, so calling it would run nothing")


def _positional_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters that the payload and the context are passed to: at most two."""
    wanted: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        optional = parameter.default is not inspect.Parameter.empty
        if parameter.kind in _POSITIONAL and (len(wanted) == 0 or not optional or _is_context(parameter)):
            wanted.append(parameter)
        elif parameter.kind in _POSITIONAL or parameter.kind is inspect.Parameter.VAR_KEYWORD or optional:
            continue  # an option of the owner's, with a default: not ours to fill
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            if not wanted:
                raise RegistrationError(
                    "*args does not say what it takes: name the payload, or use functools.wraps"
                )
        else:
            raise RegistrationError(f"the parameter {parameter.name!r} would never be given")
    if len(wanted) > 2:
        raise RegistrationError("a callback takes (payload), (payload, ctx) or nothing, and no more")
    if wanted and _is_context(wanted[0]):
        raise RegistrationError(
            "the first parameter is the payload, the second the context: def f(payload, ctx)"
        )
    return wanted


def _is_context(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    named = annotation if isinstance(annotation, str) else ""
    return (
        parameter.name in _CONTEXT_NAMES
        or annotation is TaskContext
        or named.rpartition(".")[2] == TaskContext.__name__
    )


def _payload_annotation(function: Any, parameter: inspect.Parameter) -> Any:
    if parameter.annotation is inspect.Parameter.empty:
        return Any
    # Only this one: the others may be unresolvable without harm.
    owner = SimpleNamespace(__annotations__={"payload": parameter.annotation})
    # The names in it are those of the module that the code stands in, under whatever was wrapped around it.
    namespace = getattr(inspect.unwrap(_code_of(function)), "__globals__", {})
    return resolve_hints(owner, namespace)["payload"]


def _item_annotation(batch: object, parameters: list[inspect.Parameter], annotation: Any) -> Any:
    """Return what each payload of a batch is declared as."""
    if not isinstance(batch, Batch):
        raise RegistrationError(f"batch must be a duly.Batch, not {type(batch).__name__}")
    if not parameters:
        raise RegistrationError("a callback with batch= takes (payloads) or (payloads, contexts)")
    if annotation in (Any, object, list):
        return Any
    if typing.get_origin(annotation) in (list, Sequence):
        return typing.get_args(annotation)[0]
    raise RegistrationError(
        f"a callback with batch= takes a list of payloads, not {annotation!r}: declare it as list[...]"
    )


def _code_of(function: Any) -> Any:
    """Return the function or method that runs when `function` is called."""
    if isinstance(function, functools.partial):
        return _code_of(function.func)
    return function if inspect.isroutine(function) else type(function).__call__


def _check_raw(*, raw: bool, wants_bytes: bool) -> None:
    if raw and not wants_bytes:
        raise RegistrationError("raw=True passes bytes on as they are: declare the payload as bytes")
    if wants_bytes and not raw:
        raise RegistrationError("a payload of bytes needs raw=True")
