"""The targets: every RPC of every service, with wild fields and with wild bytes, and every reader of foreign bytes."""

import asyncio
import base64
import io
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from duly_core.errors import InvalidRequestError
from duly_core.queues import message as queue_message
from duly_core.rpc.requests.decode_errors import explain
from duly_core.rpc.requests.problem import Problem
from duly_core.tasks.task import TOKEN_PREFIX_BYTES
from duly_executor.processes import frames
from duly_executor.processes.process import CallbackProcess
from duly_executor.processes.report_reader import ReportReader
from duly_frontend.cells import watching
from duly_frontend.cells.places import Places
from duly_frontend.lists import page_token
from duly_wire.externalscaler import externalscaler_pb2
from duly_wire.v1 import (
    attachments_pb2,
    callback_pb2,
    controller_pb2,
    event_addresses_pb2,
    events_pb2,
    explain_pb2,
    fleet_pb2,
    frontend_pb2,
    graphs_pb2,
    hsc_pb2,
    inspection_pb2,
    limits_pb2,
    objectives_pb2,
    output_pb2,
    pools_pb2,
    problems_pb2,
    registry_pb2,
    sessions_pb2,
    settings_pb2,
    time_tables_pb2,
    watches_pb2,
)
from tests.fuzz.generator import Generator, Known
from tests.fuzz.installation import Installation

Target = Callable[[Generator], Awaitable[str]]
"""One execution; its answer in a word. Raises AssertionError if it is none that is allowed."""

_CODES = grpc.StatusCode
_ALLOWED = {
    _CODES.INVALID_ARGUMENT,
    _CODES.NOT_FOUND,
    _CODES.RESOURCE_EXHAUSTED,
    _CODES.FAILED_PRECONDITION,
    _CODES.UNIMPLEMENTED,
    _CODES.PERMISSION_DENIED,
}
_LONG_POLLS = {"WaitTask", "WaitGraph", "NextWork", "ClaimWork", "Work", "ReadOutput", "Watch"}
SERVICES = [
    file.DESCRIPTOR.services_by_name[name]
    for file, name in (
        (attachments_pb2, "AttachmentService"),
        (frontend_pb2, "FrontendService"),
        (graphs_pb2, "GraphService"),
        (inspection_pb2, "InspectionService"),
        (limits_pb2, "LimitService"),
        (objectives_pb2, "ObjectiveService"),
        (pools_pb2, "PoolService"),
        (problems_pb2, "ProblemService"),
        (output_pb2, "OutputService"),
        (watches_pb2, "WatchService"),
        (registry_pb2, "RegistryService"),
        (events_pb2, "EventService"),
        (event_addresses_pb2, "EventAddressService"),
        (sessions_pb2, "SessionService"),
        (settings_pb2, "SettingsService"),
        (time_tables_pb2, "TimeTableService"),
        (explain_pb2, "ExplainService"),
        (fleet_pb2, "FleetService"),
        (hsc_pb2, "HscService"),
        (controller_pb2, "ControllerService"),
        (externalscaler_pb2, "ExternalScaler"),
    )
]
_SERVICES_OF_CELLS = [each for each in SERVICES if each.name not in ("ExternalScaler", "ControllerService")]


def targets(installation: Installation) -> dict[str, Target]:
    """Every target by its name; of cells those that they answer otherwise than a sole store does."""
    found: dict[str, Target] = {}
    for service in SERVICES if installation.is_sole else _SERVICES_OF_CELLS:
        for method in service.methods:
            call = path_of(installation.channels, method)
            found[f"{method.name}: fields"] = _rpc(method, call, installation.known, raw=False)
            if installation.is_sole:
                found[f"{method.name}: bytes"] = _rpc(method, call, installation.known, raw=True)
    readers = {
        "queue body": _queue_body,
        "page token": _page_token,
        "page token of cells": _page_token_of_cells,
        "position of cells": _position_of_cells,
        "callback frame": _frame,
        "callback report": _report,
        "malformed request": _malformed,
    }
    return (
        found
        | {name: _pure(reader) for name, reader in readers.items()}
        | {"queue message": _sent(installation)}
    )


def _call(channel: grpc.aio.Channel, method: MethodDescriptor, path: str) -> Any:
    """One request, one answer; of a stream of calls or answers, the first answer to one request, if one comes."""
    if not method.client_streaming and not method.server_streaming:
        return channel.unary_unary(path)
    to_many = channel.stream_stream(path) if method.client_streaming else channel.unary_stream(path)

    async def call(data: bytes, timeout: float) -> bytes:
        stream = to_many(iter([data]) if method.client_streaming else data, timeout=timeout)
        answer = await stream.read()
        stream.cancel()
        return b"" if answer is grpc.aio.EOF else answer

    return call


def _is_of_a_cell(code: grpc.StatusCode, details: str | None) -> bool:
    """Return whether a wild claim names a cell that the HSC does not know: a host is told to ask another one."""
    return code is _CODES.UNAVAILABLE and "this HSC knows no cell" in (details or "")


def path_of(channels: Mapping[str, grpc.aio.Channel], method: MethodDescriptor) -> Any:
    """Return what calls a method."""
    service = method.containing_service
    return _call(channels[service.name], method, f"/{service.full_name}/{method.name}")


def calling(method: MethodDescriptor, call: Any, known: Known) -> Callable[[bytes], Coroutine[Any, Any, str]]:
    """Return what sends a request, checks that the answer is allowed, learns from it, and returns it in a word."""
    answer_kind = GetMessageClass(method.output_type)
    patience = 0.25 if method.name in _LONG_POLLS else 10
    allowed = _ALLOWED | ({_CODES.DEADLINE_EXCEEDED} if method.name in _LONG_POLLS else set())

    async def run(data: bytes) -> str:
        try:
            answer = await call(data, timeout=patience)
        except grpc.aio.AioRpcError as error:
            text = f"{error.code().name}: {error.details()} for {len(data)} bytes {data[:200].hex()}"
            if error.code() not in allowed and not _is_of_a_cell(error.code(), error.details()):
                raise AssertionError(text) from error
            return error.code().name
        read = answer_kind.FromString(answer)
        if isinstance(read, hsc_pb2.WorkResponse) and read.HasField("error"):
            code = next(code for code in _CODES if code.value[0] == read.error.code)
            known_answer = code in _ALLOWED or _is_of_a_cell(code, read.error.message)
            assert known_answer, f"{code.name}: {read.error.message} for {data[:200].hex()}"
            return code.name
        _learn(read, known)
        return "OK"

    return run


def _rpc(method: MethodDescriptor, call: Any, known: Known, *, raw: bool) -> Target:
    kind = GetMessageClass(method.input_type)
    answered = calling(method, call, known)

    async def run(wild: Generator) -> str:
        data = wild.message(kind).SerializeToString()
        if raw:
            data = _harmless(wild.mutate(data), kind, known)
        return await answered(data)

    return run


def _harmless(data: bytes, kind: type[Message], known: Known) -> bytes:
    """Bytes that would attach somebody else's process are sent without naming it."""
    if kind is not controller_pb2.AttachExecutorRequest:
        return data
    try:
        message = kind.FromString(data)
    except DecodeError:
        return data
    for full_name, values in known.never.items():
        name = full_name.rpartition(".")[2]
        if getattr(message, name) not in values:
            setattr(message, name, values[-1])
    return message.SerializeToString()


def _learn(answer: Message, known: Known) -> None:
    """Remember what the next requests may name."""
    if isinstance(answer, frontend_pb2.ScheduleResponse):
        ids = [result.task_id for result in answer.results if result.created]
        known.texts += ids
        known.task_ids += [UUID(task_id).bytes for task_id in ids]
    elif isinstance(answer, hsc_pb2.ClaimTaskResponse):
        claims = [each.task.claim for each in answer.answers if each.task.claim.token]
        known.claims += [(claim.task_id, claim.token, claim.cell) for claim in claims]
    elif isinstance(answer, hsc_pb2.ClaimWorkResponse):
        known.claims += [(task.claim.task_id, task.claim.token, task.claim.cell) for task in answer.tasks]
        known.prefixes += [task.claim.token[:TOKEN_PREFIX_BYTES] for task in answer.tasks]
    for name in ("next_page_token", "next_after"):
        if token := getattr(answer, name, ""):
            known.page_tokens.append(token)
    for values in (known.texts, known.task_ids, known.claims, known.prefixes, known.page_tokens):
        del values[1:-100]


def _pure(reader: Callable[[Generator], str]) -> Target:
    async def run(wild: Generator) -> str:
        return reader(wild)

    return run


def _sent(installation: Installation) -> Target:
    async def run(wild: Generator) -> str:
        return "sent" if installation.send_body(_mutated_body(wild)) else "foreign"

    return run


def _mutated_body(wild: Generator) -> str:
    """Return a body with other ids, which may be no ids, or with another text."""
    ids = b"".join(wild.random.randbytes(16) for _ in range(wild.random.randrange(1, 4)))
    if wild.random.random() < 0.5:
        return queue_message.MARK + base64.b64encode(wild.mutate(ids)).decode()
    text = queue_message.MARK + base64.b64encode(ids).decode()
    return wild.mutate(text.encode()).decode(errors="surrogateescape")


def _queue_body(wild: Generator) -> str:
    try:
        ids = queue_message.unpack(_mutated_body(wild))
    except queue_message.ForeignBodyError:
        return "foreign"
    assert all(len(task_id) == 16 for task_id in ids)
    return "read"


def _page_token(wild: Generator) -> str:
    request = frontend_pb2.ListTasksRequest(collection="c")
    token = page_token.write(request, wild.random.randbytes(16))
    request.page_token = wild.mutate(token.encode()).decode(errors="replace")
    try:
        page_token.read(request)
    except InvalidRequestError:
        return "refused"
    return "read"


def _page_token_of_cells(wild: Generator) -> str:
    token = Places({"a": "x", "b": "y"}, frozenset("c"), "z").write()
    try:
        places = Places.read("page_token", wild.mutate_inside(token))
    except Problem:
        return "refused"
    assert all(isinstance(places.of(cell), str | None) for cell in "abcd")
    return "read"


def _position_of_cells(wild: Generator) -> str:
    try:
        positions = watching.read_positions(
            wild.mutate_inside(watching.write_positions({"a": "x", "b": "y"})), "a"
        )
    except Problem:
        return "refused"
    assert all(isinstance(text, str) for item in positions.items() for text in item)
    return "read"


def _frame(wild: Generator) -> str:
    stream = io.BytesIO(wild.mutate(frames.write(wild.message(callback_pb2.CallbackOrder))))
    try:
        while frames.read(stream, callback_pb2.CallbackOrder) is not None:
            pass
    except DecodeError:
        return "no message"
    return "read"


def _report(wild: Generator) -> str:
    """What the Executor reads of a callback process in which user code wrote whatever it liked."""
    reader = asyncio.StreamReader()
    reader.feed_data(wild.mutate(frames.write(wild.message(callback_pb2.CallbackReport))))
    reader.feed_eof()
    reading = CallbackProcess.read(SimpleNamespace(_reports=ReportReader(reader)))  # type: ignore[arg-type]
    try:
        reading.send(None)
    except StopIteration as end:
        return "gone" if end.value is None else "read"
    raise AssertionError("the reader waits though the stream has ended")


def _malformed(wild: Generator) -> str:
    method = wild.random.choice([method for service in SERVICES for method in service.methods])
    data = wild.mutate(wild.message(GetMessageClass(method.input_type)).SerializeToString())
    field, problem = explain(data, method.input_type)
    assert field
    assert problem
    return "explained"
