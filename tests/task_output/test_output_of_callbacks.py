"""Output on its way: from a real callback process, and through the Executor's buffer to a Frontend."""

import asyncio
import os

import grpc
import pytest

from duly_core.rpc.server import RpcServer
from duly_core.rpc.settings import RpcSettings
from duly_executor.callback.kept_output import OUTPUT_NOT_KEPT
from duly_executor.claims.ledger import HeldClaims
from duly_executor.containment.process_group import ProcessTree
from duly_executor.processes import task_output
from duly_executor.processes.environment import CallbackEnvironment
from duly_executor.processes.frontend_channel import FrontendChannel
from duly_executor.processes.process import CallbackProcess
from duly_executor.processes.task_output import OutputSender
from duly_wire.v1 import callback_pb2, hsc_pb2, output_pb2, output_pb2_grpc
from tests.fixtures import host
from tests.fixtures.callback_process import Callbacks

KIB = 1024


class Process:
    """What the sender asks of a callback process."""

    number = 0

    def __init__(self, *task_ids):
        self.tasks = set(task_ids)


class Frontend(output_pb2_grpc.OutputServiceServicer):
    """Remembers what it was sent; refuses as often as it is told."""

    def __init__(self):
        self.items = []
        self.refusals = []
        self.called = asyncio.Event()

    async def AppendOutput(self, request, context):  # noqa: N802 (the wire's name)
        self.called.set()
        if self.refusals:
            await context.abort(self.refusals.pop(0), "not now")
        self.items += request.items
        return output_pb2.AppendOutputResponse(
            results=[output_pb2.AppendOutputResult() for _ in request.items]
        )


def claimed(number):
    task = hsc_pb2.ClaimedTask(**{"lambda": "mail.send"}, fence=number)
    task.claim.task_id, task.claim.token = bytes([number] * 16), bytes([100 + number] * 16)
    return task


def said(number, data, chunk_number=1, **changes):
    fields = {
        "task_id": bytes([number] * 16),
        "chunk": output_pb2.OutputChunk(
            fence=77,
            number=chunk_number,
            plain=output_pb2.OutputPieces(
                pieces=[output_pb2.OutputPiece(stream=output_pb2.OUTPUT_STREAM_STDOUT, data=data)]
            ),
        ),
    }
    return callback_pb2.CallbackOutput(**fields | changes)


@pytest.fixture
async def sending():
    """A sender of an Executor that holds tasks 1 and 2, of which process 0 runs 1; and its Frontend."""
    frontend = Frontend()
    server = RpcServer("127.0.0.1:0", [frontend], RpcSettings())
    address = await server.start()
    await server.set_serving(serving=True)
    held = HeldClaims()
    held.add([claimed(1), claimed(2)], 2**62)
    held.get(bytes([1] * 16)).process = 0
    held.get(bytes([2] * 16)).process = 1
    channel = FrontendChannel(RpcSettings(), 1)
    channel.use(address)
    yield OutputSender(held, channel), frontend
    await channel.close()
    await server.stop()


async def sent(sender):
    async with asyncio.timeout(15):
        while sender._sending is not None:
            await asyncio.wait([sender._sending])
            await asyncio.sleep(0)


async def test_the_executor_fills_in_token_and_run_and_passes_over_what_is_not_the_process_s_own(sending):
    sender, frontend = sending
    process = Process(bytes([1] * 16), bytes([2] * 16), bytes([3] * 16))

    sender.take(
        process, [said(1, b"own"), said(2, b"another's"), said(3, b"unknown"), said(1, bytes(80 * KIB))]
    )
    await sent(sender)

    assert [(each.claim_token, each.chunk.fence) for each in frontend.items] == [(bytes([101] * 16), 1)]
    assert [piece.data for each in frontend.items for piece in each.chunk.plain.pieces] == [b"own"]


async def test_what_a_frontend_that_was_away_did_not_get_is_sent_again_in_order(sending):
    sender, frontend = sending
    frontend.refusals = [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED]
    process = Process(bytes([1] * 16))

    for number in range(3):
        sender.take(process, [said(1, b"x", number + 1)])
    await sent(sender)

    assert [each.chunk.number for each in frontend.items] == [1, 2, 3]


async def test_a_frontend_that_refuses_for_good_is_sent_nothing_more_of_it(sending):
    sender, frontend = sending
    frontend.refusals = [grpc.StatusCode.UNIMPLEMENTED]

    sender.take(Process(bytes([1] * 16)), [said(1, b"x", 1)])
    await sent(sender)
    sender.take(Process(bytes([1] * 16)), [said(1, b"x", 2)])
    await sent(sender)

    assert [each.chunk.number for each in frontend.items] == [2]


async def test_while_the_frontend_is_away_the_oldest_output_is_left_out(sending, monkeypatch):
    sender, frontend = sending
    monkeypatch.setattr(task_output, "_MOST_WAITING", 100 * KIB)

    for number in range(20):
        sender.take(Process(bytes([1] * 16)), [said(1, bytes(20 * KIB), number + 1)])
    await sent(sender)

    assert [each.chunk.number for each in frontend.items] == [17, 18, 19, 20]


@pytest.mark.parametrize("name", ["test.talk", "test.async_talk"])
async def test_a_process_sends_what_its_callback_prints_before_the_result(callbacks, name):
    task = host.claimed(name, {"lines": 2, "of": 1})

    callbacks.give(task)
    await callbacks.result(task)

    told = [(place, each) for place, report in enumerate(callbacks.reports) for each in report.output]
    ended_at = next(place for place, report in enumerate(callbacks.reports) if report.results)
    assert told
    assert all(place < ended_at for place, _ in told)
    assert {each.task_id for _, each in told} == {task.claim.task_id}


async def test_of_a_lambda_that_says_so_and_for_an_executor_that_says_so_nothing_is_kept(callbacks):
    environment = CallbackEnvironment(os.environ)
    environment.variables[OUTPUT_NOT_KEPT] = "true"
    started = await CallbackProcess.start(
        0, "executor-id", host.APP, callbacks.board, ProcessTree(), environment=environment
    )
    callbacks.others.append(started)
    await started.hello()
    without = Callbacks(started, callbacks.board)
    secretive, talking = host.claimed("test.secretive"), host.claimed("test.talk", {"lines": 2, "of": 1})

    callbacks.give(secretive)
    without.give(talking)
    ends = [await callbacks.result(secretive), await without.result(talking)]

    assert {each.outcome for each in ends} == {hsc_pb2.OUTCOME_SUCCESS}
    assert [each for report in (*callbacks.reports, *without.reports) for each in report.output] == []
