"""Messages in protobuf, each behind its length as a varint: duly/v1/program.proto."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from google.protobuf.message import DecodeError

from duly.attachments.attachment import encoded_by, form_of
from duly.callbacks.outcomes import CompleteLater, FatalFailure, RetriableFailure, Snooze
from duly.callbacks.payload import decode, encode
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
)
from duly_wire.time_conversion import to_timedelta, to_timestamp
from duly_wire.v1 import program_pb2, task_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duly.context import TaskContext
    from duly_wire.v1 import hsc_pb2

_LONGEST_VARINT = 5


class Delimited:
    """Both directions of one program; keeps the beginning of a message."""

    def __init__(self) -> None:
        self._begun = bytearray()
        self._number = 0

    @staticmethod
    def write(order: Order) -> bytes:
        """Return the bytes of a message to a program."""
        if isinstance(order, Cancel):
            message = program_pb2.ProgramOrder(cancel=order.task_id)
        else:
            message = program_pb2.ProgramOrder(task=_task(order.context))
            message.task.payload = order.payload.data
            message.task.payload_encoding = task_pb2.Encoding.ValueType(order.payload.encoding)
        body = message.SerializeToString()
        return _varint(len(body)) + body

    def read(self, data: bytes) -> Iterator[Report]:
        """Yield the messages that are complete now.

        Raises:
            ProtocolError: something is no message, or is too long.
        """
        self._begun += data
        while (found := self._length()) is not None:
            size, start = found
            if len(self._begun) < start + size:
                return
            body = bytes(self._begun[start : start + size])
            del self._begun[: start + size]
            self._number += 1
            try:
                yield _parse(body)
            except ProtocolError as error:
                raise ProtocolError(f"message {self._number} of its stdout: {error}") from None

    def _length(self) -> tuple[int, int] | None:
        """Return the length of the next message and where it begins; None: it has not all come."""
        size = 0
        for place, byte in enumerate(self._begun[:_LONGEST_VARINT]):
            size |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                if size > MOST_BYTES:
                    break
                return size, place + 1
        else:
            if len(self._begun) < _LONGEST_VARINT:
                return None
        raise ProtocolError(f"message {self._number + 1} of its stdout is longer than {MOST_BYTES:,} bytes")


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def _task(context: TaskContext) -> program_pb2.ProgramTask:
    task = program_pb2.ProgramTask(
        id=context.task_id,
        attempt=context.attempt,
        fence=context.fence,
        priority=task_pb2.Priority.ValueType(context.priority),
        due_at=to_timestamp(context.due_at),
        deadline=to_timestamp(context.deadline),
        domain=context.domain,
        completion_token=context.completion_token(),
    )
    setattr(task, "lambda", context.lambda_name)
    if context.checkpointed is not None:
        with encoded_by(form_of):  # it may have attachments
            task.checkpoint, _ = encode(context.checkpointed)
    if context.tick_at is not None:
        task.tick_at.CopyFrom(to_timestamp(context.tick_at))
    if context.graph_id:
        _set_place(task.graph, context)
    return task


def _set_place(place: hsc_pb2.GraphPlace, context: TaskContext) -> None:
    place.graph_id = UUID(context.graph_id).bytes
    place.label = context.label
    place.truncated = context.predecessors.truncated
    for node in context.predecessors.values():
        omitted = node.result_omitted or node.result_encoding == task_pb2.ENCODING_ATTACHMENT
        place.predecessors.add(
            label=node.label,
            task_id=UUID(node.task_id).bytes,
            status=task_pb2.TaskStatus.ValueType(node.status or 0),
            result=b"" if omitted else node.result_bytes,
            result_encoding=task_pb2.Encoding.ValueType(node.result_encoding),
            result_omitted=omitted,
        )


def _parse(body: bytes) -> Report:
    try:
        message = program_pb2.ProgramReport.FromString(body)
    except DecodeError:
        raise ProtocolError("not a ProgramReport; log to stderr") from None
    try:
        return _report(message)
    except PayloadError as error:
        raise ProtocolError(str(error).removeprefix("payload: ")) from None
    except (ValueError, OverflowError) as error:
        raise ProtocolError(str(error)) from None


def _report(message: program_pb2.ProgramReport) -> Report:
    task_id, kind = message.id, message.WhichOneof("report")
    if kind == "ready":
        return Ready()
    if kind == "progress":
        if not 0 <= message.progress.fraction <= 1:
            raise ProtocolError("fraction is not a number from 0 to 1")
        return Progress(task_id, message.progress.fraction, message.progress.note)
    if kind == "checkpoint":
        return Checkpoint(task_id, decode(message.checkpoint, task_pb2.ENCODING_JSON))
    if kind == "success":
        raw = message.success.result_encoding == task_pb2.ENCODING_RAW
        encoding = task_pb2.ENCODING_RAW if raw else task_pb2.ENCODING_JSON
        return Success(task_id, decode(message.success.result, encoding))
    if kind == "cancelled":
        return Cancelled(task_id)
    return Failed(task_id, _not_done(message))


def _not_done(
    message: program_pb2.ProgramReport,
) -> RetriableFailure | FatalFailure | Snooze | CompleteLater:
    kind = message.WhichOneof("report")
    if kind == "retry":
        has_time = message.retry.HasField("retry_after")
        after = to_timedelta(message.retry.retry_after) if has_time else None
        return RetriableFailure(message.retry.message, after)
    if kind == "fatal":
        return FatalFailure(message.fatal.message)
    if kind == "snooze":
        return Snooze(to_timedelta(message.snooze))
    if kind == "complete_later":
        return CompleteLater(to_timedelta(message.complete_later))
    raise ProtocolError("it reports nothing that this Duly knows")
