"""A callback process can send its Executor no descriptors, and has neither what the Executor inherited nor its sockets."""

import os
import socket
from contextlib import ExitStack

import pytest
import uvloop

from duly_core.host.slot_board import SlotBoard
from duly_executor.containment.process_group import ProcessTree
from duly_executor.processes.process import CallbackProcess, refuse_descriptors
from tests.fixtures.callback_process import Callbacks
from tests.fixtures.host import claimed

KERNEL = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])


@pytest.mark.skipif(KERNEL < (6, 16), reason="SO_PASSRIGHTS is of Linux 6.16")
def test_the_link_of_a_callback_process_carries_no_descriptors():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        refuse_descriptors(ours)

        with pytest.raises(PermissionError):
            socket.send_fds(theirs, [b"x"], [theirs.fileno()])

        theirs.sendall(b"y")
        assert ours.recv(10) == b"y"


HOSTILE = "tests.fixtures.hostile_callbacks:app"


def test_what_the_executor_inherited_is_open_in_no_callback_process_nor_below(in_root: None) -> None:
    inherited = os.memfd_create("inherited")
    os.set_inheritable(inherited, True)
    task = claimed("hostile.descriptors")

    async def descriptors() -> str:
        board = SlotBoard.create(1, 1)
        process = await CallbackProcess.start(0, "executor-id", HOSTILE, board, ProcessTree())
        try:
            await process.hello()
            callbacks = Callbacks(process, board)
            callbacks.give(task)
            return (await callbacks.result(task)).result.decode()
        finally:
            process.kill()
            await process.ended()
            os.close(board.descriptor)

    try:
        told = uvloop.run(descriptors())  # it hands on what asyncio closes
    finally:
        os.close(inherited)

    assert "duly-last-words" in told
    assert "memfd:inherited" not in told


async def test_a_callback_cannot_shut_down_the_socket_to_which_its_worker_logs(in_root: None) -> None:
    log, ours = socket.socketpair()  # as journald's
    board = SlotBoard.create(1, 1)
    task = claimed("hostile.silence")
    with log, ours, ExitStack() as kept:
        for output in (1, 2):
            before = os.dup(output)
            kept.callback(os.close, before)
            kept.callback(os.dup2, before, output)
            os.dup2(ours.fileno(), output)
        process = await CallbackProcess.start(0, "executor-id", HOSTILE, board, ProcessTree())
        try:
            await process.hello()
            callbacks = Callbacks(process, board)
            callbacks.give(task)
            await callbacks.result(task)
        finally:
            process.kill()
            await process.ended()
            os.close(board.descriptor)

        log.settimeout(10)
        assert log.recv(1_000) == b"the last word\n"
        ours.sendall(b"killed\n")
        assert log.recv(1_000) == b"killed\n"
