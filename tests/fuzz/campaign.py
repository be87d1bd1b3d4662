"""Runs targets for some time, counts, and stops at the first thing that must not happen."""

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from types import MappingProxyType

from tests.fuzz.generator import Generator
from tests.fuzz.installation import Installation
from tests.fuzz.targets import Target, targets

HANG_S = 1.0
"""No answer may take longer (the machine's own slowness aside: see `patience`)."""

_MEGABYTE = 1024 * 1024
_CRANK_EVERY = 50
_WARM_UP = 500
"""Executions before memory is looked at: pools fill, modules load."""


@dataclass
class Tally:
    """What came of one target."""

    executions: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0


def rss_megabytes() -> float:
    """How much memory this process has."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / _MEGABYTE


async def fuzz(
    installation: Installation,
    seconds: float,
    seed: int,
    *,
    patience: float = 1,
    growth_mb: float = 100,
    often: Mapping[str, Target] = MappingProxyType({}),
) -> dict[str, Tally]:
    """Take the targets in turn until time is up; one of those in `often` comes after each other one.

    `patience` stretches the limit of a hang on a machine that is busy with other things.

    Raises:
        AssertionError: an answer that is not allowed, a hang, memory that grows, rows that contradict each other;
            says which target and which seed.
    """
    unheard: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(str(context)))
    every = targets(installation)
    tallies = {name: Tally() for name in [*every, *often]}
    turns = _turns(every, often)
    executions, memory = 0, 0.0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, target in islice(turns, len(tallies)):
            wild = Generator(seed * 1_000_003 + executions, installation.known)
            started = time.monotonic()
            try:
                answer = await target(wild)
            except Exception as error:
                raise AssertionError(f"{name} (seed {seed}, execution {executions}): {error}") from error
            took = time.monotonic() - started
            assert took < HANG_S * patience, f"{name} (seed {seed}, execution {executions}) took {took:.1f} s"
            tally = tallies[name]
            tally.executions += 1
            tally.answers[answer] += 1
            tally.slowest_s = max(tally.slowest_s, took)
            executions += 1
            if executions % _CRANK_EVERY == 0:
                await installation.crank()
            if executions == _WARM_UP:
                memory = rss_megabytes()
    await installation.check()
    gc.collect()
    await asyncio.sleep(0)
    assert not unheard, f"errors that nobody hears fill the log (seed {seed}): {unheard[0]}"
    if memory:
        grown = rss_megabytes() - memory
        assert grown < growth_mb, f"memory grew by {grown:.0f} MB in {executions} executions (seed {seed})"
    return tallies


def _turns(every: Mapping[str, Target], often: Mapping[str, Target]) -> Iterator[tuple[str, Target]]:
    between = cycle(often.items())
    for each in cycle(every.items()):
        yield each
        if often:
            yield next(between)
