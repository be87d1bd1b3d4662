"""What callback processes ask of a Frontend through their Executor, which is between the two."""

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

import grpc
import pytest

import duly
from duly.attachments.attachment import KEY
from duly.attachments.memory import MemoryService
from duly.attachments.service import BEGIN, FETCH, FINISH, UPLOAD
from duly.attachments.upload import upload
from duly_wire.v1 import (
    attachments_pb2_grpc,
    event_addresses_pb2,
    event_addresses_pb2_grpc,
    hsc_pb2,
    task_pb2,
)
from tests.fixtures.host import Host, claimed, value_of
from tests.fixtures.scripted_hsc import serving

APP = "tests.fixtures.attachment_callbacks:app"
PERMISSION_DENIED, INVALID_ARGUMENT, UNIMPLEMENTED = 7, 3, 12


class ScriptedFrontend(
    attachments_pb2_grpc.AttachmentServiceServicer, event_addresses_pb2_grpc.EventAddressServiceServicer
):
    """Keeps attachments in memory, and what was asked."""

    def __init__(self) -> None:
        self.store = MemoryService()
        self.asked: list[tuple[str, Any]] = []
        self.under_way = self.most_under_way = 0
        self.times_away = 0

    async def _answer(self, method: Any, request: Any, context: Any) -> Any:
        self.asked.append((method.name, request))
        if self.times_away:
            self.times_away -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "away, says the script")
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        return self.store.call(method, request)

    async def BeginUploads(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._answer(BEGIN, request, context)

    async def UploadParts(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._answer(UPLOAD, request, context)

    async def FinishUploads(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._answer(FINISH, request, context)

    async def FetchParts(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._answer(FETCH, request, context)

    async def CreateEventAddresses(self, request: Any, _context: Any) -> Any:  # noqa: N802
        self.asked.append(("CreateEventAddresses", request))
        made = event_addresses_pb2.CreateEventAddressResult(token="secret", url="https://duly.test/secret")
        return event_addresses_pb2.CreateEventAddressesResponse(results=[made])


@pytest.fixture
async def frontend(host: Host, peers: AsyncExitStack) -> ScriptedFrontend:
    """A Frontend of which the Controller tells."""
    made = ScriptedFrontend()

    def add(server: Any) -> None:
        attachments_pb2_grpc.add_AttachmentServiceServicer_to_server(made, server)
        event_addresses_pb2_grpc.add_EventAddressServiceServicer_to_server(made, server)

    host.controller.frontend_address = await peers.enter_async_context(serving(add, "127.0.0.1:0"))
    return made


async def ended(host: Host, task: hsc_pb2.ClaimedTask) -> hsc_pb2.TaskResult:
    await host.ready(application=APP)
    host.hand_out(task)
    return await host.hsc.end_of(task)


async def test_a_callback_reads_returns_and_keeps_files_through_its_executor(
    host: Host, frontend: ScriptedFrontend
) -> None:
    content = bytes(range(256)) * 20_000
    (stored,) = upload(frontend.store, "", [duly.Attachment(content, name="table")], None)
    frontend.times_away = 1
    task = claimed(
        "files.turn", {"file": {KEY: {"hash": stored.attachment.hash, "size": len(content), "name": "table"}}}
    )

    result = await ended(host, task)

    returned = value_of(result)["file"][KEY]
    assert returned["size"] == len(content)
    assert [(use.name, use.role) for use in result.attachments] == [
        ("turned", task_pb2.ATTACHMENT_ROLE_RESULT),
        ("log", task_pb2.ATTACHMENT_ROLE_STDERR),
    ]
    assert frontend.store.content(bytes.fromhex(returned["hash"])) == content[::-1]
    fetched = [request for name, request in frontend.asked if name == "FetchParts"]
    assert {request.task_id for request in fetched} == {str(UUID(bytes=task.claim.task_id))}
    assert {request.claim_token for request in fetched} == {task.claim.token}
    sent = [request for name, request in frontend.asked if name != "FetchParts"]
    assert {getattr(request, "lambda") for request in sent} == {"files.turn"}


async def test_a_large_result_becomes_an_attachment(host: Host, frontend: ScriptedFrontend) -> None:
    result = await ended(host, claimed("files.large"))

    assert result.result_encoding == task_pb2.ENCODING_ATTACHMENT
    (use,) = result.attachments
    assert json.loads(frontend.store.content(use.hash)) == "x" * 5000


async def test_where_there_are_no_attachments_a_large_result_is_a_fatal_failure(host: Host) -> None:
    result = await ended(host, claimed("files.large"))

    assert result.outcome == hsc_pb2.OUTCOME_FATAL_FAILURE
    assert result.failure_kind == task_pb2.FAILURE_KIND_BAD_RESULT
    assert "larger than result_limit, 1000" in result.failure_message


async def test_a_callback_gets_nothing_in_the_name_of_another_task(
    host: Host, frontend: ScriptedFrontend
) -> None:
    upload(frontend.store, "", [duly.Attachment(b"secret")], None)
    other = claimed("files.turn")
    task = claimed("files.steal", str(UUID(bytes=other.claim.task_id)))

    told = value_of(await ended(host, task))

    assert told["as_other"] == PERMISSION_DENIED
    # its own request says another task, and another token, than the Executor makes of it
    (request,) = (request for _, request in frontend.asked)
    assert request.task_id == str(UUID(bytes=task.claim.task_id))
    assert request.claim_token == task.claim.token


async def test_an_address_is_made_with_the_right_of_the_task_that_asks(
    host: Host, frontend: ScriptedFrontend
) -> None:
    task = claimed("shop/files.ask")

    told = value_of(await ended(host, task))

    assert told == ["secret", "https://duly.test/secret"]
    (own, _), requests = zip(*frontend.asked, strict=True)
    assert own == "CreateEventAddresses"
    assert requests[0].addresses[0].namespace == "shop"
    assert {request.task_id for request in requests} == {str(UUID(bytes=task.claim.task_id))}
    assert {request.claim_token for request in requests} == {task.claim.token}


async def test_what_nobody_understands_is_refused_and_the_process_lives(
    host: Host, frontend: ScriptedFrontend
) -> None:
    codes = value_of(await ended(host, claimed("files.garbage")))
    again = claimed("files.garbage")
    host.hand_out(again)

    assert codes == [
        INVALID_ARGUMENT,
        INVALID_ARGUMENT,
        UNIMPLEMENTED,
        UNIMPLEMENTED,
        INVALID_ARGUMENT,
        PERMISSION_DENIED,
    ]
    assert value_of(await host.hsc.end_of(again)) == codes
    assert frontend.asked == []


async def test_a_process_that_asks_for_more_at_a_time_than_it_may_is_refused_the_rest(
    host: Host, frontend: ScriptedFrontend
) -> None:
    refused = value_of(await ended(host, claimed("files.flood")))

    assert 0 < refused < 200
    assert frontend.most_under_way <= 4
    assert len(frontend.asked) == 200 - refused
