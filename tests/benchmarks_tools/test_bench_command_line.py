"""The benchmark refuses what cannot be measured, in words, before it starts anything."""

from pathlib import Path

import pytest

from benchmarks.command_line import parse


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--runs", "0"], "'0' is not a whole number from 1 to 100"),
        (["--tasks", "0"], "'0' is not a whole number from 1 to 1,000,000"),
        (["--tasks", "-5"], "'-5' is not a whole number"),
        (["--tasks", "2e4"], "'2e4' is not a whole number"),
        (["--executors", "0"], "'0' is not a whole number from 1 to 64"),
        (["--processes", "-1"], "'-1' is not a whole number"),
        (["--slots", "0"], "'0' is not a whole number"),
        (["--growth", "waiting", "--waiting", "10000,0"], "'0' is not a whole number from 100"),
        (["--growth", "everything"], "invalid choice: 'everything'"),
        (["--only", "sidekiq"], "invalid choice: 'sidekiq'"),
        (["--growth", "--only", "duly"], "--only chooses what is measured side by side"),
        (["--json", "no/such/folder/run.json"], "its folder is not there"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_the_reason(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        parse(arguments)

    assert refused.value.code == 2
    assert told in capsys.readouterr().err


def test_a_folder_is_refused_as_the_file_to_keep_figures_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(["--json", str(tmp_path)])

    assert "it is a folder" in capsys.readouterr().err


def test_sizes_are_read_with_commas_between() -> None:
    assert parse(["--growth", "waiting", "--waiting", "1000, 5000"]).waiting == [1000, 5000]
