"""A callback process can send its Executor no descriptors, and has none of what the Executor inherited."""

import os
import socket

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
