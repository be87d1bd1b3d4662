"""The failpoints: what is declared is in the code, and what a file says happens, as often as it says."""

import asyncio
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from duly_core.errors import QueueUnavailableError, StoreUnavailableError
from duly_core.process import failpoints
from duly_core.process.failpoints import around, hit, hit_here
from tests.fixtures.failpoint_engine import UnexpectedError, environment_of
from tests.fixtures.failpoint_table import FAILPOINTS
from tests.fixtures.failpoints import Failpoints
from tests.fixtures.waiting import until

ROOT = Path(__file__).parents[2]
IN_CODE = re.compile(r"failpoints\.(hit|hit_here|around)\(\s*\"([a-z_.]+)\"")
POINT = "hsc.claim.after"
PAIRS = ("hsc.claim", "executor.set_results", "controller.claim")
MOST_WAIT = timedelta(seconds=5)


@pytest.fixture
def points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Failpoints:
    return Failpoints.in_this_process(tmp_path, monkeypatch)


def modules() -> dict[str, str]:
    """The text of every module that may hold a failpoint, by its name."""
    found = {}
    for tree in ("core", *(f"services/{folder.name}" for folder in (ROOT / "services").iterdir())):
        for file in (ROOT / tree).rglob("*.py"):
            name = ".".join(file.relative_to(ROOT / tree).with_suffix("").parts)
            found[name] = file.read_text(encoding="utf-8")
    return found


def sides(name: str) -> list[str]:
    """Return the two failpoints of a pair: the one before, then the one after."""
    return [f"{name}.before", f"{name}.after"]


def test_each_declared_failpoint_is_in_the_module_that_it_names_once_and_no_other_is_in_the_code() -> None:
    in_code = [
        (point, module)
        for module, text in modules().items()
        for function, name in IN_CODE.findall(text)
        for point in (sides(name) if function == "around" else [name])
    ]

    assert sorted(in_code) == sorted((point.name, point.module) for point in FAILPOINTS.values())


async def test_what_a_file_says_is_not_looked_at_while_failpoints_are_off(
    points: Failpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failpoints, "carry_out", None)
    points.arm(POINT, "raise")

    await hit(POINT)
    hit_here(POINT)
    async with around("hsc.claim"):
        pass

    assert points.hits(POINT) == []


@pytest.mark.parametrize("name", PAIRS)
async def test_of_a_pair_the_first_is_hit_before_the_block_and_the_second_after_it(
    points: Failpoints, name: str
) -> None:
    before, after = sides(name)
    for point in (before, after):
        points.arm(point, "delay 0ms")

    async with around(name):
        assert [len(points.hits(point)) for point in (before, after)] == [1, 0]

    assert [len(points.hits(point)) for point in (before, after)] == [1, 1]


async def test_the_second_of_a_pair_is_not_hit_when_the_block_raises(points: Failpoints) -> None:
    points.arm(POINT, "delay 0ms")

    with pytest.raises(KeyError):
        async with around("hsc.claim"):
            raise KeyError

    assert points.hits(POINT) == []


def test_failpoints_are_off_unless_the_environment_names_what_carries_them_out() -> None:
    program = "from duly_core.process import failpoints; print(failpoints.carry_out is not None)"

    answers = [
        subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()
        for environment in ({}, environment_of(Path("/somewhere")))
    ]

    assert answers == ["False", "True"]


async def test_nothing_happens_where_no_file_says_so(points: Failpoints) -> None:
    await hit(POINT)
    hit_here(POINT)

    assert points.hits(POINT) == []


@pytest.mark.parametrize(
    ("point", "order", "error"),
    [
        ("hsc.claim.before", "raise", StoreUnavailableError),
        ("store_consumer.push.before", "raise", QueueUnavailableError),
        ("controller.claim.before", "raise", UnexpectedError),
        ("controller.claim.before", "raise queue", QueueUnavailableError),
        ("hsc.claim.after", "drop_reply", StoreUnavailableError),
    ],
)
async def test_what_the_point_or_the_order_names_is_raised(
    points: Failpoints, point: str, order: str, error: type[Exception]
) -> None:
    points.arm(point, order)

    for _ in range(2):
        with pytest.raises(error, match=point):
            await hit(point)

    assert [action for _, action in points.hits(point)] == [order.split(maxsplit=1)[0]] * 2


@pytest.mark.parametrize(("times", "expected"), [("once", 1), ("3", 3)])
def test_of_many_who_come_at_once_as_many_are_hit_as_the_order_says(
    points: Failpoints, times: str, expected: int
) -> None:
    points.arm(POINT, f"raise {times}")
    outcomes: Counter[str] = Counter()
    together = threading.Barrier(8)

    def come() -> None:
        together.wait()
        for _ in range(20):
            try:
                hit_here(POINT)
            except StoreUnavailableError:
                outcomes["hit"] += 1

    threads = [threading.Thread(target=come) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert outcomes["hit"] == expected
    assert len(points.hits(POINT)) == expected
    assert not (points.folder / POINT).exists()


async def test_a_delay_lets_the_loop_go_on(points: Failpoints) -> None:
    points.arm(POINT, "delay 20ms once")
    others = 0
    waiting = asyncio.ensure_future(hit(POINT))

    while not waiting.done():
        await asyncio.sleep(0)
        others += 1

    assert others > 1
    assert points.hits(POINT)


async def test_who_is_stopped_goes_on_when_let_go(points: Failpoints) -> None:
    points.arm(POINT, "stop")
    stopped = asyncio.ensure_future(hit(POINT))
    await until(lambda: points.is_reached(POINT))
    await hit(POINT)  # the next one passes: one is stopped

    assert not stopped.done()
    points.let_go(POINT)

    await asyncio.wait_for(stopped, MOST_WAIT.total_seconds())


def test_a_crash_is_a_sigkill_that_nothing_follows(points: Failpoints) -> None:
    points.arm(POINT, "crash once")
    program = f"from duly_core.process import failpoints; failpoints.hit_here({POINT!r}); print('lives')"

    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment_of(points.folder),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")
    assert len(points.hits(POINT)) == 1


@pytest.mark.parametrize("order", ["", "explode", "crash twice", "delay", "delay once"])
async def test_an_order_that_makes_no_sense_is_an_error(points: Failpoints, order: str) -> None:
    points.arm(POINT, order)

    with pytest.raises(ValueError):
        await hit(POINT)


def test_a_process_says_at_its_start_that_failpoints_are_on(tmp_path: Path) -> None:
    program = (
        "import asyncio; from duly_core.process.service import run_service\n"
        "async def serve(stop): pass\n"
        "run_service('test', lambda: serve)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment_of(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert "failpoints enabled" in done.stderr
