"""Requests that are well-formed, and hostile in what they name of cells: claims, ids and page tokens of another cell, or of none."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from duly_core.tasks.task import TOKEN_PREFIX_BYTES
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import attachments_pb2, frontend_pb2, hsc_pb2, output_pb2
from tests.fuzz.generator import Generator
from tests.fuzz.installation import EXECUTOR, Installation
from tests.fuzz.targets import SERVICES, Target, calling, path_of

_METHODS = {method.name: method for service in SERVICES for method in service.methods}
_PAGED = [
    method
    for method in _METHODS.values()
    if {"page_token", "after"} & {*method.input_type.fields_by_name} and not method.server_streaming
]
_BY_ID = [
    method
    for method in _METHODS.values()
    if {"task_id", "task_ids"} & {*method.input_type.fields_by_name}
    and not method.client_streaming
    and not method.name.startswith("Wait")
]
_MOST = 6


def hostile(installation: Installation) -> dict[str, Target]:
    """Return the targets by name."""
    known = installation.known

    def target(make: Callable[[Generator], tuple[str, Message]]) -> Target:
        async def run(wild: Generator) -> str:
            name, request = make(wild)
            method = _METHODS[name]
            call = path_of(installation.channels, method)
            return await calling(method, call, known)(request.SerializeToString())

        return run

    def named(name: str, make: Callable[[Generator], Message]) -> Target:
        return target(lambda wild: (name, make(wild)))

    return {
        "claimed work": named("ClaimWork", _claim_work),
        "tasks with ids of others": named("Schedule", _schedule),
        "heartbeats of other cells": named("Heartbeat", _heartbeat),
        "results of other cells": named("SetResults", _results),
        "releases in other cells": named("Release", _release),
        "proposals of other cells": named("ClaimTask", _proposals),
        "output of other cells": named("AppendOutput", _output),
        "parts for other claims": named("FetchParts", _parts),
        "ids of others": target(_by_id),
        "pages of others": target(_page),
    }


def _some(wild: Generator, make: Callable[[Generator], Any]) -> list[Any]:
    return [make(wild) for _ in range(wild.random.randrange(1, _MOST))]


def _claim(wild: Generator) -> hsc_pb2.Claim:
    """A claim of which each part is right, or another's."""
    pick, known = wild.random.choice, wild.known
    task_id, token, cell = pick(known.claims)
    if wild.random.random() < 0.4:
        task_id = pick(known.task_ids)
    if wild.random.random() < 0.2:
        token = pick([wild.random.randbytes(16), pick(known.claims)[1]])
    if wild.random.random() < 0.3:
        cell = pick(known.cells if wild.random.random() < 0.3 else ["", "a", "b"])
    return hsc_pb2.Claim(task_id=task_id, token=token, cell=cell)


def _claim_work(wild: Generator) -> Message:
    return hsc_pb2.ClaimWorkRequest(
        holder=EXECUTOR,
        lambdas=wild.random.sample(wild.known.lambdas, wild.random.randrange(1, 3)),
        max_tasks=3,
        timeout=to_duration(timedelta()),
        token_prefix=wild.random.randbytes(TOKEN_PREFIX_BYTES),
        keeps_cells=wild.random.random() < 0.9,
    )


def _schedule(wild: Generator) -> Message:
    def task(wild: Generator) -> frontend_pb2.NewTask:
        new = frontend_pb2.NewTask(payload=b"{}")
        setattr(new, "lambda", wild.random.choice(wild.known.lambdas))
        if wild.random.random() < 0.3:
            new.task_id = _id(wild)
        return new

    return frontend_pb2.ScheduleRequest(tasks=_some(wild, task))


def _heartbeat(wild: Generator) -> Message:
    items = [hsc_pb2.HeartbeatItem(claim=claim) for claim in _some(wild, _claim)]
    return hsc_pb2.HeartbeatRequest(items=items, holder=EXECUTOR)


def _results(wild: Generator) -> Message:
    results = [
        hsc_pb2.TaskResult(claim=claim, outcome=hsc_pb2.OUTCOME_SUCCESS, result=b"{}")
        for claim in _some(wild, _claim)
    ]
    return hsc_pb2.SetResultsRequest(results=results)


def _release(wild: Generator) -> Message:
    claims = _some(wild, _claim)
    prefixes = (
        [wild.random.choice(wild.known.claims)[1][:TOKEN_PREFIX_BYTES]] if wild.random.random() < 0.2 else []
    )
    stopped = [hsc_pb2.StoppedRun(task_id=claim.task_id, reason="x") for claim in claims[:1]]
    return hsc_pb2.ReleaseRequest(claims=claims, token_prefixes=prefixes, stopped=stopped)


def _proposals(wild: Generator) -> Message:
    def proposal(wild: Generator) -> hsc_pb2.ClaimProposal:
        made = hsc_pb2.ClaimProposal(claim=_claim(wild))
        setattr(made, "lambda", wild.random.choice(wild.known.lambdas))
        return made

    return hsc_pb2.ClaimTaskRequest(
        proposals=_some(wild, proposal), holder=EXECUTOR, keeps_cells=wild.random.random() < 0.7
    )


def _output(wild: Generator) -> Message:
    items = []
    for claim in _some(wild, _claim):
        chunk = output_pb2.OutputChunk(fence=1, number=1, size_bytes=1, encrypted=b"x")
        items.append(output_pb2.AppendOutputItem(task_id=claim.task_id, claim_token=claim.token, chunk=chunk))
    return output_pb2.AppendOutputRequest(items=items)


def _parts(wild: Generator) -> Message:
    claim = _claim(wild)
    return attachments_pb2.FetchPartsRequest(
        task_id=str(UUID(bytes=claim.task_id)), hash=bytes(32), claim_token=claim.token
    )


def _id(wild: Generator) -> str:
    return str(UUID(bytes=wild.random.choice(wild.known.task_ids)))


def _by_id(wild: Generator) -> tuple[str, Message]:
    """Any call that names tasks by their ids, with ids of any cell, and nothing else that is wild."""
    method = wild.random.choice(_BY_ID)
    request = GetMessageClass(method.input_type)()
    fields: Mapping[str, FieldDescriptor] = method.input_type.fields_by_name
    if "task_ids" in fields:
        request.task_ids.extend(_some(wild, _id))
    elif fields["task_id"].type == FieldDescriptor.TYPE_BYTES:
        request.task_id = wild.random.choice(wild.known.task_ids)
    else:
        request.task_id = _id(wild)
    return method.name, request


def _page(wild: Generator) -> tuple[str, Message]:
    """Any list, or change page by page, small pages, that goes on where another one was, or nowhere."""
    method = wild.random.choice(_PAGED)
    request = GetMessageClass(method.input_type)()
    fields = method.input_type.fields_by_name
    if "page_size" in fields:
        request.page_size = 1
    if "limit" in fields and fields["limit"].type in (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64):
        request.limit = 1
    if "lambda" in fields and wild.random.random() < 0.5:
        setattr(request, "lambda", wild.random.choice(wild.known.lambdas))
    if wild.known.page_tokens and wild.random.random() < 0.7:
        token = wild.random.choice(wild.known.page_tokens)
        if wild.random.random() < 0.4:
            token = wild.mutate_inside(token)
        setattr(request, "page_token" if "page_token" in fields else "after", token)
    return method.name, request
