"""A callback process can send its Executor no descriptors."""

import os
import socket

import pytest

from duly_executor.processes.process import refuse_descriptors

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
