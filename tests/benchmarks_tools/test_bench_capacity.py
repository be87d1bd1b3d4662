"""The model, the points that it was fitted to, and the page say the same; the fit finds what it is known to be."""

import json
import re
from typing import Any

import pytest

from benchmarks.capacity import fit, report
from benchmarks.capacity.__main__ import MODEL, POINTS
from benchmarks.capacity.cases import CASES, Case
from duly_cli.capacity.model import PROCESSES, Groups, Model, cost_of, of_json, terms


@pytest.fixture(scope="module")
def capacity_points() -> dict[str, object]:
    """The points that are committed."""
    return json.loads(POINTS.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def capacity_fit(capacity_points: dict[str, object]) -> dict[str, object]:
    """The model that these points make."""
    return json.loads(json.dumps(fit.model(capacity_points)))


def test_the_model_of_the_command_is_the_fit_to_the_points(capacity_fit: dict[str, object]) -> None:
    assert capacity_fit == json.loads(MODEL.read_text(encoding="utf-8")), (
        "run python -m benchmarks.capacity --fit-only"
    )


def test_the_tables_of_the_page_are_made_of_the_points(
    capacity_points: dict[str, object], capacity_fit: dict[str, object]
) -> None:
    text = report.PAGE.read_text(encoding="utf-8")

    assert text.count("<!-- made by benchmarks/capacity") == text.count("<!-- end -->") > 0
    assert report.page(text, capacity_points, capacity_fit) == text, "run the same"


def test_some_loads_are_held_out_and_the_page_has_them_in_bold() -> None:
    held_out = {case.name for case in CASES if case.held_out}
    lines = report.PAGE.read_text(encoding="utf-8").splitlines()

    assert len(held_out) >= 4
    assert {found[1] for line in lines if (found := re.match(r"\| \*\*(.*?)\*\* \|", line))} == held_out


def test_a_model_that_made_the_points_is_found_again_and_fits_without_error() -> None:
    made = of_json(json.loads(MODEL.read_text(encoding="utf-8")))

    fitted = fit.model(points_of(made))

    found = of_json(fitted)
    for process in PROCESSES:
        for term, value in made.cpu_us[process].items():
            assert found.cpu_us[process][term] == pytest.approx(value, rel=0.02, abs=1), (process, term)
    assert max(fitted["measured"]["largest_error_of_held_out"].values()) < 0.05


def points_of(made: Model) -> dict[str, Any]:
    """Return what one round would find on a machine where the model is right, with nothing used when idle."""
    nothing = dict.fromkeys(PROCESSES, 0.0)
    loads = []
    for case in CASES:
        mix, rate = fit.mix_of(case), case.rate
        schedule, run = (
            made.schedule_groups_of(mix, rate),
            made.run_groups_of(mix, rate) if case.runs else 0.0,
        )
        values = terms(mix, schedule, run, runs=case.runs)
        loads.append(
            {
                "round": 1,
                "case": case.name,
                "tasks": 1_000,
                "seconds": 1.0,
                "rate": rate,
                "cpu": {name: cost_of(cost, values) for name, cost in made.cpu_us.items()},
                "groups": {"schedule": schedule, "SetResults": run, "ClaimWork": run},
                "wal_bytes": made.wal_of(mix, values),
                "transactions": cost_of(made.transactions, values),
            }
        )
    kept = [
        {"payload": payload, "bytes_per_task": size, "wal_bytes": wal}
        for (payload, size), (_, wal) in zip(made.kept_bytes, made.wal_bytes_of_payload, strict=True)
    ]
    told = json.loads(POINTS.read_text(encoding="utf-8"))["machine"]
    idle = {"round": 1, "cpu": nothing, "wal_bytes": 0.0, "transactions": 0.0}
    walls = {"round": 1, "wal_bytes_per_s": 1.0, "commits_per_s": 1.0}
    held = {"round": 1, "running": 200, "cpu": nothing}
    return {"machine": told, "loads": loads, "idle": [idle], "kept": kept, "held": [held], "walls": [walls]}


def test_least_squares_finds_coefficients_and_none_below_zero() -> None:
    rows = [[1.0, x, y] for x in (0.0, 1.0, 2.0) for y in (0.0, 3.0)]

    assert fit.least_squares(rows, [5 + 2 * x + 0.5 * y for _, x, y in rows]) == pytest.approx(
        [5, 2, 0.5], rel=1e-4
    )
    rising_against = fit.least_squares(rows, [5 - 2 * x for _, x, _ in rows])
    assert min(rising_against) == 0.0


def test_a_curve_of_groups_is_found_again() -> None:
    meant = Groups(alone=1.0, half_rate=160, steepness=1.5, highest_rate=2_000)
    arrivals = [(float(rate), meant.of_arrival(rate)) for rate in (20, 50, 160, 400, 1_000, 2_000)]

    assert fit.fit_groups(arrivals) == meant


def test_a_load_says_what_its_tasks_are_like() -> None:
    mix = fit.mix_of(Case("", 1, each=10, payload=4_096, later=True, queue="sqs"))

    assert (mix.tasks_per_call, mix.payload, mix.ahead, mix.sqs, mix.in_sessions) == (
        10,
        4_096,
        1.0,
        1.0,
        0.0,
    )
