"""Callback processes that are replaced because they are old, one at a time, without a pause and without a charge."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

from duly_executor.processes.recycling import Recycling, resident_bytes
from duly_executor.settings import ExecutorSettings
from duly_wire.v1 import hsc_pb2
from tests.fixtures.host import Host, claimed, gone, value_of

MIB = 1024 * 1024


def process(pid: int, told: int = 0, **fields: Any) -> SimpleNamespace:
    made = SimpleNamespace(
        process=SimpleNamespace(pid=pid),
        told=told,
        works=True,
        is_old=False,
        lingers_since=None,
        began_at=0.0,
    )
    made.__dict__.update(fields)
    return made


def old_of(processes: list[SimpleNamespace], now: float = 60.0, **settings: int) -> list[int]:
    """The pids of those that are marked by one look; a process uses as many MiB as its pid says."""
    recycling = Recycling(ExecutorSettings.load(processes=2, **settings), lambda pid: pid * MIB)
    before = [each.is_old for each in processes]
    recycling.mark(processes, now)  # type: ignore[arg-type]
    return [each.process.pid for each, was in zip(processes, before, strict=True) if each.is_old and not was]


@pytest.mark.parametrize(
    ("processes", "settings", "marked"),
    [
        ([process(1, 99), process(2, 100), process(3, 101)], {"recycle_after_tasks": 100}, [2]),
        ([process(1, 100), process(2, 5, is_old=True)], {"recycle_after_tasks": 100}, []),
        (
            [process(1, 100), process(2, 100, lingers_since=1.0, works=False)],
            {"recycle_after_tasks": 100},
            [1],
        ),
        (
            [process(1, 100), *(process(n, 100, lingers_since=1.0, works=False) for n in (2, 3))],
            {"recycle_after_tasks": 100},
            [],
        ),
        ([process(50), process(51)], {"recycle_above_memory": 50 * MIB}, [51]),
        ([process(51, began_at=55.0)], {"recycle_above_memory": 50 * MIB}, []),
        ([process(51, 10**9)], {}, []),
    ],
)
def test_one_is_marked_that_has_ended_enough_or_grown_and_none_while_another_waits_for_its_successor(
    processes: list[SimpleNamespace], settings: dict[str, int], marked: list[int]
) -> None:
    assert old_of(processes, **settings) == marked


def test_memory_is_that_of_the_process_itself() -> None:
    before = resident_bytes(os.getpid())
    ballast = bytearray(os.urandom(1)) * (64 * MIB)

    assert resident_bytes(os.getpid()) - before > 32 * MIB, len(ballast)
    assert resident_bytes(2**22 + 1) == 0


async def test_an_old_process_ends_what_it_runs_while_its_successor_takes_the_next_tasks(host: Host) -> None:
    executor = await host.ready(DULY_EXECUTOR_RECYCLE_AFTER_TASKS="3", DULY_EXECUTOR_SLOTS="4")
    long = host.waiting()
    old = await host.running(long)

    pids, done = {old}, 0
    while pids == {old}:
        task = claimed("test.context")
        host.hand_out(task)
        pids.add(value_of(await host.hsc.end_of(task))["pid"])
        done += 1
    host.journal.let_go()

    assert done > 3
    assert value_of(await host.hsc.end_of(long)) == "waited"
    await gone(old)
    assert {result.outcome for result in host.hsc.results} == {hsc_pb2.OUTCOME_SUCCESS}
    assert host.hsc.releases == []
    await executor.says("callback process is replaced")
    assert "callback process died" not in executor.output
