"""A soak fails for a series that grows, and for no other; its tally knows what became of every task."""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.soak.app import NOTE
from benchmarks.soak.judge import FLOORS, judge, judge_all
from benchmarks.soak.report import judged, passed, render
from benchmarks.soak.tally import Fate, Tally

MINUTES = [60.0 * number for number in range(1, 121)]
NOISE = random.Random(7)  # noqa: S311 (the same in every run)


def noisy(value: Callable[[int], float], spread: float) -> list[float | None]:
    return [value(number) + NOISE.uniform(-spread, spread) for number in range(len(MINUTES))]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("memory: hsc 1", noisy(lambda minute: 40 + 0.1 * minute, 0.5)),
        ("files: frontend 1", [30.0 + minute // 10 for minute in range(120)]),
        ("size: indexes of task_assoc", noisy(lambda minute: 8 + 0.05 * minute, 2)),
        ("live rows: session", [6_200 + 1_200.0 * (minute % 5) + 30 * minute for minute in range(120)]),
        ("dead rows: task_assoc", noisy(lambda minute: 2_000 + 100 * minute, 3_000)),
        ("lateness p99", noisy(lambda minute: 50 + 2 * minute, 60)),
    ],
)
def test_a_series_that_grows_steadily_is_found_in_the_noise(name: str, values: list[float | None]) -> None:
    verdict = judge(name, MINUTES, values)

    assert verdict.grows
    assert verdict.rise > 0


@pytest.mark.parametrize(
    ("name", "values"),
    [
        pytest.param("memory: hsc 1", noisy(lambda _: 40, 10), id="noise alone"),
        pytest.param("memory: hsc 1", [40.0] * 120, id="constant"),
        pytest.param("files: hsc 1", [0.0] * 120, id="always none"),
        pytest.param("wal", [float(16 * (2 + minute % 7)) for minute in range(120)], id="a saw"),
        pytest.param("dead rows: task", [500.0 * (minute % 13) for minute in range(120)], id="a coarse saw"),
        pytest.param(
            "live rows: idempotency_key",
            [6_200 + 1_200.0 * (minute % 5) + 7 * minute for minute in range(120)],
            id="a saw whose samples are taken later and later in its period",
        ),
        pytest.param(
            "memory: hsc 1",
            noisy(lambda minute: 40 + 20 * min(minute / 20, 1), 0.5),
            id="only in the warm-up",
        ),
        pytest.param("memory: hsc 1", noisy(lambda minute: 400 + 0.1 * minute, 0.5), id="less than 5 %"),
        pytest.param("threads: hsc 1", [10.0] * 60 + [12.0] * 60, id="below the floor"),
        pytest.param("memory: hsc 1", noisy(lambda minute: 60 - 0.1 * minute, 0.5), id="shrinks"),
        pytest.param("memory: hsc 1", [40.0] * 119 + [4_000.0], id="one peak"),
    ],
)
def test_a_series_that_does_not_grow_is_flat(name: str, values: list[float | None]) -> None:
    verdict = judge(name, MINUTES, values)

    assert not verdict.grows
    assert verdict.judged


def test_samples_that_are_missing_are_left_out_and_too_few_give_no_verdict() -> None:
    there = noisy(lambda minute: 40 + 0.1 * minute, 0.1)
    gaps = [value if number % 2 else None for number, value in enumerate(there)]
    few = [value if number > 115 else None for number, value in enumerate(there)]

    assert judge("memory: hsc 1", MINUTES, gaps).grows
    assert not judge("memory: hsc 1", MINUTES, few).judged


def test_series_that_grow_are_first_and_one_of_an_unknown_kind_is_an_error() -> None:
    series: dict[str, list[float | None]] = {
        "connections": [17.0] * 120,
        "wal": [float(64 + 16 * minute) for minute in range(120)],
    }

    assert [verdict.name for verdict in judge_all(MINUTES, series)] == ["wal", "connections"]
    with pytest.raises(KeyError):
        judge("temperature", MINUTES, [1.0] * 120)


def found(series: dict[str, list[float | None]], *problems: str) -> dict[str, Any]:
    return judged(
        {
            "rate": 25.0,
            "times": MINUTES,
            "series": series,
            "load": {"scheduled": 3, "started": 2, "cancelled": 1, "started_again": 0},
            "partitions_dropped": 4,
            "problems": list(problems),
        }
    )


def test_the_report_names_what_grew_and_what_went_wrong() -> None:
    growing: list[float | None] = [40.0 + minute for minute in range(120)]
    flat: list[float | None] = [17.0] * 120

    grown, held, failed = (
        found({"memory: hsc 1": growing}),
        found({"connections": flat}),
        found({}, "a task did not end"),
    )

    assert not passed(grown)
    assert "GREW: memory: hsc 1" in render(grown)
    assert passed(held)
    assert "no series grew" in render(held)
    assert not passed(failed)
    assert "PROBLEM: a task did not end" in render(failed)
    assert all(math.isfinite(floor) for floor in FLOORS.values())


def note(file: Path, *numbers: int, lateness: float = math.nan) -> None:
    with file.open("ab") as notes:
        notes.write(b"".join(NOTE.pack(number, lateness) for number in numbers))


def test_the_tally_tells_what_ran_what_was_cancelled_and_what_is_missing(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    tally = Tally(notes)
    for number in range(5):
        tally.expect(number)

    note(notes, 0, 1, lateness=0.25)
    tally.read()
    tally.cancelled(2)
    note(notes, 1, 3)
    tally.read()

    assert tally.missing() == [4]
    assert (tally.count(Fate.STARTED), tally.count(Fate.CANCELLED)) == (3, 1)
    assert tally.started_again == 1
    assert tally.take_lateness() == {"p50": 250.0, "p99": 250.0}
    assert tally.take_lateness() == {}


def test_the_tally_tells_of_tasks_that_ran_although_they_were_cancelled_and_of_early_notes(
    tmp_path: Path,
) -> None:
    notes = tmp_path / "notes"
    tally = Tally(notes)

    note(notes, 7)  # before the call that scheduled it is answered
    tally.read()
    tally.expect(7)
    tally.expect(8)
    tally.cancelled(8)
    note(notes, 8)
    tally.read()

    assert tally.missing() == []
    assert tally.started_though_cancelled == 1


def test_half_a_note_is_read_when_the_rest_is_there(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    tally = Tally(notes)
    whole = NOTE.pack(3, 0.5)

    notes.write_bytes(whole[:5])
    tally.read()
    before = tally.count(Fate.STARTED)
    notes.write_bytes(whole)
    tally.read()

    assert before == 0
    assert tally.count(Fate.STARTED) == 1
