"""The line that tests cut: what a cut line took is over, also what it had not taken yet."""

import asyncio
import gc
import socket
import warnings

import pytest

from tests.fixtures.services import BreakableLine


@pytest.fixture
def far_end():
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()


@pytest.mark.parametrize("turns", range(8))
async def test_a_connection_that_comes_as_the_line_is_cut_is_refused_or_broken(far_end, turns):
    line = BreakableLine(*far_end)
    await line.restore()
    host, port = line.address.split(":")
    with socket.create_connection((host, int(port))) as client:
        for _ in range(turns):
            await asyncio.sleep(0)

        await line.cut()
        client.settimeout(10)
        try:
            received = await asyncio.to_thread(client.recv, 1)
        except ConnectionError:
            received = b""

    assert received == b""


def test_a_cut_line_leaves_no_socket_open(far_end):
    async def cut_after(turns):
        line = BreakableLine(*far_end)
        await line.restore()
        host, port = line.address.split(":")
        with socket.create_connection((host, int(port))):
            for _ in range(turns):
                await asyncio.sleep(0)
            await line.cut()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for turns in range(8):
            asyncio.run(cut_after(turns))
        gc.collect()

    assert [str(each.message) for each in caught if "unclosed" in str(each.message)] == []
