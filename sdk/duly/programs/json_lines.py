"""Messages as JSON, one a line: the form that any language can read and write."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from duly.attachments.attachment import encoded_by, form_of
from duly.callbacks.outcomes import CompleteLater, FatalFailure, RetriableFailure, Snooze
from duly.callbacks.payload import SentPayload, decode, encode
from duly.errors import PayloadError
from duly.programs.messages import (
    MOST_BYTES,
    Cancel,
    Cancelled,
    Checkpoint,
    Failed,
    Order,
    Progress,
    ProtocolError,
    Ready,
    Report,
    Success,
    Task,
    seconds,
)
from duly_wire.v1 import task_pb2

_SEPARATORS = tuple((each.encode(), rf"\u{ord(each):04x}".encode()) for each in "\x85\u2028\u2029")


class JsonLines:
    """Both directions of one program; keeps the beginning of a line."""

    def __init__(self) -> None:
        self._begun = bytearray()
        self._searched = 0
        self._line = 0

    @staticmethod
    def write(order: Order) -> bytes:
        """Return the bytes of a message to a program."""
        if isinstance(order, Cancel):
            return _dump({"type": "cancel", "id": order.task_id}) + b"\n"
        return _on_one_line(_task(order)) + b"\n"

    def read(self, data: bytes) -> Iterator[Report]:
        """Yield the messages that are complete now.

        Raises:
            ProtocolError: a line is no message, or has no end.
        """
        self._begun += data
        while (end := self._begun.find(b"\n", self._searched)) >= 0:
            line = bytes(self._begun[:end])
            del self._begun[: end + 1]
            self._searched = 0
            self._line += 1
            if len(line) > MOST_BYTES:
                raise self._too_long()
            if line.strip():
                yield self._report(line)
        self._searched = len(self._begun)
        if self._searched > MOST_BYTES:
            self._line += 1
            raise self._too_long()

    def _too_long(self) -> ProtocolError:
        return ProtocolError(f"line {self._line} of its stdout is longer than {MOST_BYTES:,} bytes")

    def _report(self, line: bytes) -> Report:
        try:
            return _parse(line)
        except ProtocolError as error:
            raise ProtocolError(f"line {self._line} of its stdout: {error}") from None


# ---- to a program --------------------------------------------------------------------------------------


def _dump(value: Any) -> bytes:
    return encode(value)[0]


def _on_one_line(text: bytes) -> bytes:
    """Escape what some languages take for the end of a line; in JSON it stands in texts only."""
    for separator, escaped in _SEPARATORS:
        text = text.replace(separator, escaped)
    return text


def _task(order: Task) -> bytes:
    context = order.context
    told: dict[str, Any] = {
        "type": "task",
        "id": context.task_id,
        "lambda": context.lambda_name,
        "attempt": context.attempt,
        "fence": context.fence,
        "priority": context.priority.name.lower(),
        "due_at": context.due_at.isoformat(),
        "deadline": context.deadline.isoformat(),
        "completion_token": context.completion_token(),
    }
    if context.domain:
        told["domain"] = context.domain
    if context.tick_at is not None:
        told["tick_at"] = context.tick_at.isoformat()
    if context.checkpointed is not None:
        told["checkpoint"] = context.checkpointed
    if context.graph_id:
        told["graph"] = {
            "id": context.graph_id,
            "label": context.label,
            "predecessors": {label: _predecessor(each) for label, each in context.predecessors.items()},
        }
    name, value = payload_field(order.payload)
    with encoded_by(form_of):  # results of predecessors may have attachments
        begin = _dump(told)
    return begin[:-1] + b',"' + name.encode() + b'":' + value + b"}"


def payload_field(sent: SentPayload) -> tuple[str, bytes]:
    """Return the payload's name in the message, and its value as it was sent: no number is read and written again."""
    if sent.encoding == task_pb2.ENCODING_RAW:
        return "payload_base64", b'"' + base64.b64encode(sent.data) + b'"'
    return "payload", sent.data.replace(b"\n", b" ").replace(b"\r", b" ") or b"null"


def _predecessor(node: Any) -> dict[str, Any]:
    told = {"id": node.task_id, "status": node.status_name}
    if node.result_omitted or node.result_encoding == task_pb2.ENCODING_ATTACHMENT:
        return told | {"result_omitted": True}
    return told | _value("result", node.result)


def _value(name: str, value: object) -> dict[str, Any]:
    if isinstance(value, bytes):
        return {f"{name}_base64": base64.b64encode(value).decode()}
    return {name: value}


# ---- from a program ------------------------------------------------------------------------------------


def _parse(line: bytes) -> Report:
    try:
        message = decode(line, task_pb2.ENCODING_JSON)
    except PayloadError as error:
        hint = "" if line.lstrip().startswith(b"{") else "; log to stderr"
        raise ProtocolError(f"{str(error).removeprefix('payload: ')}{hint}") from None
    if not isinstance(message, dict):
        raise ProtocolError("a message is a JSON object; log to stderr")
    kind = message.pop("type", None)
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        raise ProtocolError(f'its "type" is not one of {", ".join(_READERS)}')
    report = read(message)
    if message:
        raise ProtocolError(f'a "{kind}" has {len(message)} more fields than docs/programs.md names')
    return report


def _text(message: dict[str, Any], name: str, default: str | None = None) -> str:
    value = message.pop(name, default)
    if not isinstance(value, str):
        raise ProtocolError(f'"{name}" is missing' if value is None else f'"{name}" is not a text')
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ProtocolError(f'"{name}" has a lone surrogate') from None
    return value


def _progress(message: dict[str, Any]) -> Progress:
    fraction = message.pop("fraction", None)
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
        raise ProtocolError('"fraction" is not a number from 0 to 1')
    return Progress(_text(message, "id"), float(fraction), _text(message, "note", ""))


def _checkpoint(message: dict[str, Any]) -> Checkpoint:
    if "value" not in message:
        raise ProtocolError('"value" is missing')
    return Checkpoint(_text(message, "id"), message.pop("value"))


def _success(message: dict[str, Any]) -> Success:
    task_id = _text(message, "id")
    if "result_base64" not in message:
        return Success(task_id, message.pop("result", None))
    try:
        return Success(task_id, base64.b64decode(_text(message, "result_base64"), validate=True))
    except (binascii.Error, ValueError):
        raise ProtocolError('"result_base64" is not base64') from None


def _retry(message: dict[str, Any]) -> Failed:
    task_id, text = _text(message, "id"), _text(message, "message", "")
    after = seconds(message.pop("retry_after"), '"retry_after"') if "retry_after" in message else None
    return Failed(task_id, _checked(lambda: RetriableFailure(text, after)))


def _fatal(message: dict[str, Any]) -> Failed:
    return Failed(_text(message, "id"), FatalFailure(_text(message, "message", "")))


def _complete_later(message: dict[str, Any]) -> Failed:
    task_id = _text(message, "id")
    if "timeout" not in message:
        return Failed(task_id, CompleteLater())
    timeout = seconds(message.pop("timeout"), '"timeout"')
    return Failed(task_id, _checked(lambda: CompleteLater(timeout)))


def _snooze(message: dict[str, Any]) -> Failed:
    task_id = _text(message, "id")
    delay = seconds(message.pop("delay", None), '"delay"')
    return Failed(task_id, _checked(lambda: Snooze(delay)))


def _checked(
    make: Callable[[], RetriableFailure | Snooze | CompleteLater],
) -> RetriableFailure | Snooze | CompleteLater:
    try:
        return make()
    except ValueError as error:
        raise ProtocolError(str(error)) from None


_READERS: Mapping[str, Callable[[dict[str, Any]], Report]] = {
    "ready": lambda _: Ready(),
    "progress": _progress,
    "checkpoint": _checkpoint,
    "success": _success,
    "retry": _retry,
    "fatal": _fatal,
    "snooze": _snooze,
    "complete_later": _complete_later,
    "cancelled": lambda message: Cancelled(_text(message, "id")),
}
