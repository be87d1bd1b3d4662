"""Ports of an earlier run that was killed become free when what is left of it has drained."""

import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from duly_core.errors import PortInUseError
from duly_local import ports
from duly_local.environment import drain_time
from duly_local.ports import LOOPBACK, await_free, free_port, free_ports


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as opened:
        opened.bind((LOOPBACK, 0))
        opened.listen()
        yield opened


def test_a_port_that_becomes_free_is_waited_for_and_the_user_told(listener: socket.socket) -> None:
    port, told = listener.getsockname()[1], []

    def tell(text: str) -> None:
        told.append(text)
        listener.close()

    await_free(port, "worker", timedelta(seconds=10), tell)

    assert len(told) == 1
    assert f"port {port}, for worker, is in use: waiting up to 10 s" in told[0]


def test_a_port_that_stays_in_use_is_refused_in_the_end(listener: socket.socket) -> None:
    port = listener.getsockname()[1]

    with pytest.raises(PortInUseError, match=str(port)):
        await_free(port, "worker", timedelta(milliseconds=150), lambda _: None)


def test_the_way_out_is_told_with_the_refusal(listener: socket.socket) -> None:
    port = listener.getsockname()[1]

    with pytest.raises(PortInUseError, match="stop what listens there, or add --free-ports"):
        await_free(port, "worker", timedelta(), lambda _: None, way_out="add --free-ports")


def test_nobody_is_told_anything_when_the_port_is_free() -> None:
    told: list[str] = []

    await_free(free_port(), "worker", timedelta(seconds=10), told.append)

    assert not told


def test_free_ports_are_none_that_outgoing_connections_get() -> None:
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    found = free_ports(100)

    assert len(set(found)) == 100
    if first > 12_000:  # else everything may go out
        assert not any(first <= port <= last for port in found)


def test_what_was_found_before_is_not_found_again_while_it_may_be_wanted() -> None:
    assert not {*free_ports(20)} & {*free_ports(20)}


@pytest.mark.parametrize("text", ["1024 65535", "nonsense", None])
def test_where_everything_may_go_out_any_port_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    outgoing = tmp_path / "range"
    if text is not None:
        outgoing.write_text(text)
    monkeypatch.setattr(ports, "_OUTGOING", outgoing)

    assert len(free_ports(3)) == 3


def test_too_few_free_ports_are_told_with_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_FIRST_TO_LAST", range(21_990, 21_992))

    with pytest.raises(PortInUseError, match=r"21990 to 21991 only \d are free"):
        free_ports(3)


@pytest.mark.parametrize(("grace", "seconds"), [(None, 10), ("30s", 33), ("nonsense", 3)])
def test_the_wait_lasts_as_long_as_a_worker_may_drain(
    monkeypatch: pytest.MonkeyPatch, grace: str | None, seconds: int
) -> None:
    if grace is None:
        monkeypatch.delenv("DULY_EXECUTOR_DRAIN_GRACE", raising=False)
    else:
        monkeypatch.setenv("DULY_EXECUTOR_DRAIN_GRACE", grace)

    assert drain_time() == timedelta(seconds=seconds)
