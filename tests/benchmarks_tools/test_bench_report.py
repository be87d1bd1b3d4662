"""The tables say what was measured, of whom it was not and why, and compare within each round."""

from typing import Any

from benchmarks.report import Table, render


def measurement(
    number: int, system: str, workload: str, problem: str = "", **values: float
) -> dict[str, Any]:
    return {
        "round": number,
        "system": system,
        "workload": workload,
        "tasks": 100,
        "calibration": {"loop_cpu_s": 0.05, "fdatasync_per_s": 9000.0},
        "figures": {
            "values": values,
            "cpu_us_per_task": {"postgres": 40.0},
            "memory_mib": {"postgres": 80.0},
        },
        "problem": problem,
    }


def run(*measurements: dict[str, Any]) -> dict[str, Any]:
    def described(title: str, not_run: str = "") -> dict[str, str]:
        return {"title": title, "settings": "its best", "durability": "Postgres", "not_run": not_run}

    return {
        "machine": {"cores": "2"},
        "options": {},
        "systems": {
            "duly": described("Duly"),
            "quick": described("Quick"),
            "slow": described("Slow"),
            "gone": described("Gone", "no redis-server on the PATH"),
        },
        "measurements": list(measurements),
    }


def test_duly_is_compared_with_the_best_rival_of_the_same_round() -> None:
    found = run(
        measurement(1, "duly", "drain", rate=300.0),
        measurement(1, "quick", "drain", rate=100.0),
        measurement(1, "slow", "drain", rate=10.0),
        measurement(2, "duly", "drain", rate=100.0),
        measurement(2, "quick", "drain", rate=20.0),
        measurement(2, "slow", "drain", rate=50.0),
    )

    best, ratios = Table(found).ratios("drain", "rate", more_is_better=True)

    assert best == "quick"
    assert ratios == [3.0, 2.0]


def test_of_times_the_lowest_is_the_best() -> None:
    found = run(
        measurement(1, "duly", "latency", p99_ms=5.0),
        measurement(1, "quick", "latency", p99_ms=10.0),
        measurement(1, "slow", "latency", p99_ms=90.0),
    )

    assert Table(found).ratios("latency", "p99_ms", more_is_better=False) == ("quick", [2.0])


def test_a_system_that_was_not_run_is_shown_with_the_reason() -> None:
    told = render(run(measurement(1, "duly", "drain", rate=300.0)))

    assert "not run: no redis-server on the PATH" in told


def test_a_measurement_that_failed_is_shown_with_the_reason() -> None:
    told = render(run(measurement(1, "slow", "submit_bulk", problem="no such API\nand more")))

    assert "no such API" in told
    assert "and more" not in told


def test_work_that_was_not_asked_for_has_no_row() -> None:
    told = render(run(measurement(1, "duly", "drain", rate=300.0)))

    assert "drain of queued tasks" in told
    assert "end to end" not in told


def test_how_cost_grows_is_one_row_for_each_size_with_all_its_runs() -> None:
    found = run()
    found["systems"] = {}
    found["growth"] = {
        "executors": [
            {
                "executors": count,
                "values": {"rate": rate},
                "cpu_us_per_task": {"hsc": 30.0},
                "calibration": {},
            }
            for count, rate in ((1, 100.0), (2, 150.0), (1, 300.0))
        ]
    }

    told = render(found)

    assert "| 1 | 200 (100 to 300) | 30 (30 to 30) | hsc 30 |" in told
    assert "| 2 | 150 | 30 | hsc 30 |" in told


def test_the_floor_of_a_lone_task_stands_beside_dulys_latency_of_the_same_round() -> None:
    parts = dict.fromkeys(
        (
            "call_of_the_frontend_us",
            "schedule_us",
            "claim_work_us",
        ),
        800.0,
    )
    found = run(
        measurement(1, "duly", "latency", p50_ms=9.0, p99_ms=20.0),
        measurement(1, "floor", "floor_latency", p50_ms=3.0, p99_ms=5.0, **parts),
        measurement(2, "duly", "latency", p50_ms=6.0, p99_ms=20.0),
        measurement(2, "floor", "floor_latency", p50_ms=3.0, p99_ms=5.0, **parts),
    )

    told = render(found)

    assert "| p50 | 3.0 (3.0 to 3.0) | 7.5 (6.0 to 9.0) | 2.50 (2.00 to 3.00) x |" in told
    assert "| claim_work | 800 |" in told


def test_the_floor_of_a_call_stands_beside_dulys_rate_of_the_same_round() -> None:
    found = run(
        measurement(1, "duly_json", "one_call", p50_ms=1.5, p99_ms=3.0, rate=600.0),
        measurement(1, "floor", "floor_call", p50_ms=1.0, p99_ms=2.0, rate=800.0, insert_us=500.0),
    )

    told = render(found)

    assert "| p50 | 1.0 | 1.5 | 1.50 x |" in told
    assert "| calls a second (more is better) | 800.0 | 600.0 | 0.75 x |" in told


def test_a_part_that_failed_is_told_with_the_reason() -> None:
    found = run()
    found["problems"] = {"executors": "BenchmarkError: none of 100 tasks started"}

    assert "executors: failed: BenchmarkError: none of 100 tasks started" in render(found)
