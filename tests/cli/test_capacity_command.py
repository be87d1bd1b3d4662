"""`duly capacity` estimates without a Frontend, fits a terminal, and refuses what means nothing by the name of its option."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from duly_cli.__main__ import app
from duly_cli.capacity.costs import NAMES


def run(*words: str, width: int = 80) -> Result:
    environment = {"COLUMNS": str(width), "DULY_ADDRESS": "nobody.invalid:1"}
    return CliRunner().invoke(app, ["capacity", *words], env=environment)


def test_it_says_what_a_load_needs_and_costs_and_how_good_the_estimate_is() -> None:
    shown = run("--tasks-per-second", "9000")

    assert (shown.exit_code, shown.stderr) == (0, "")
    for part in ("cells", "Postgres", "Frontends", "hosts", "WAL", "commits", "all", "Its largest error"):
        assert part in shown.stdout
    assert "1,800 tasks run at a time" in shown.stdout


def test_as_json_it_is_one_object_with_units_in_its_names() -> None:
    shown = run(
        "--tasks-per-second", "100", "--average", "10", "--retention", "1d", "--sqs", "--output", "json"
    )

    found = json.loads(shown.stdout)
    assert found["kept_tasks"] == 864_000
    assert found["wal_bytes_per_s"] > 0
    assert {wall["name"] for wall in found["walls"]} == {"commits", "WAL", "Postgres CPU", "disk"}
    assert {line["name"] for line in found["cost"]["lines"]} >= {"hosts", "SQS"}
    assert found["model"]["postgres"]


def test_a_slower_volume_needs_more_cells() -> None:
    usual, slow = (
        json.loads(run("--tasks-per-second", "9000", "--json", *more).stdout)["cells"]
        for more in ((), ("--wal", "10MiB"))
    )

    assert slow > usual


@pytest.mark.parametrize(("option", "wall"), [("--wal", "WAL"), ("--disk", "disk")])
def test_bytes_of_a_volume_have_units_up_to_tebibytes(option: str, wall: str) -> None:
    there_is = [
        next(each["there_is"] for each in json.loads(shown.stdout)["walls"] if each["name"] == wall)
        for shown in (
            run("--tasks-per-second", "1", option, size, "--json") for size in ("3GiB", "2TB", "1TiB")
        )
    ]

    assert there_is == [3 * 2**30, 2 * 10**12, 2**40]


def test_own_prices_take_the_place_of_list_prices(tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    file.write_text(json.dumps({"currency": "EUR", "region": "racks", "prices": dict.fromkeys(NAMES, 0)}))

    shown = run("--tasks-per-second", "100", "--prices", str(file), "--json")

    cost = json.loads(shown.stdout)["cost"]
    assert (cost["currency"], cost["region"]) == ("EUR", "racks")
    assert {line["a_month"] for line in cost["lines"]} == {0.0}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--tasks-per-second"),
        (("--tasks-per-second", "0"), "tasks a second must be more than 0"),
        (("--tasks-per-second", "-5"), "--tasks-per-second"),
        (("--tasks-per-second", "nan"), "--tasks-per-second"),
        (("--tasks-per-second", "9", "--average", "10"), "above the peak"),
        (("--tasks-per-second", "9", "--payload", "1Gi"), "is no number of bytes"),
        (("--tasks-per-second", "9", "--payload", "2MiB"), "more than 1MiB"),
        (("--tasks-per-second", "9", "--payload", "1GiB"), "more than 1MiB"),
        (("--tasks-per-second", "9", "--run-time", "soon"), "--run-time"),
        (("--tasks-per-second", "9", "--wal", "fast"), "--wal"),
        (("--tasks-per-second", "9", "--wal", "0"), "what a volume writes of WAL must be more than 0"),
        (("--tasks-per-second", "9", "--disk", "large"), "--disk"),
        (("--tasks-per-second", "9", "--disk", "0"), "the disk of a Postgres must be more than 0"),
        (("--tasks-per-second", "9000", "--disk", "1GiB"), "do not carry it"),
        (("--tasks-per-second", "1e308", "--run-time", "10d"), "at most 1e+18"),
        (
            ("--tasks-per-second", "9", "--run-time", "1s", "--callback-cpu", "2s"),
            "more CPU than its run time",
        ),
        (("--tasks-per-second", "9", "--ahead", "1.1"), "--ahead"),
        (("--tasks-per-second", "9", "--prices", "no-such-file"), "cannot be read"),
        (("--tasks-per-second", "1e12"), "do not carry it"),
    ],
)
def test_what_means_nothing_is_refused_with_what_to_change(words: tuple[str, ...], says: str) -> None:
    refused = run(*words, width=200)

    assert (refused.exit_code, refused.stdout) == (2, "")
    assert says in refused.stderr


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        '{"prices": {"vcpu_hour": "free"}}',
        f'{{"prices": {{"vcpu_hour": 1{"0" * 400}}}}}',
        "\x00",
        "[" * 100_000,
    ],
)
def test_a_file_of_prices_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "prices.json"
    file.write_text(text)

    refused = run("--tasks-per-second", "9", "--prices", str(file), width=200)

    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--prices" in refused.stderr


def test_it_fits_eighty_columns() -> None:
    shown = run("--tasks-per-second", "1000000", "--sqs", "--payload", "100B", "--run-time", "1m")

    assert shown.exit_code == 0
    assert [line for line in shown.stdout.splitlines() if len(line) > 80] == []
