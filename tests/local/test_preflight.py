"""What the processes of a stack will be told is checked before any of them starts."""

import sys
from pathlib import Path

import pytest

from duly_core.errors import SettingsError
from duly_local.preflight import check


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_that_is_wrong_is_said_at_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DULY_EXECUTOR_SLOT", "4")
    (place / "broken.py").write_text("print('noise')\nimport no_such_thing\n")

    with pytest.raises(SettingsError) as refused:
        check(["nosuch:app", "broken:app"])

    said = str(refused.value)
    assert "DULY_EXECUTOR_SLOT: there is no setting executor.slot; do you mean executor.slots?" in said
    assert "there is no module 'nosuch'" in said
    assert "'broken' imports 'no_such_thing', which is not installed" in said
    assert "noise" not in said


def test_what_the_frontend_would_refuse_is_said_before_anything_starts(place: Path) -> None:
    (place / "shop.py").write_text(
        "import duly\napp = duly.App()\n@app.callback('price')\ndef price(): ...\n"
        "app.time_table('daily', 'price', cron='0 0 30 2 *')\n"
    )

    with pytest.raises(SettingsError, match=r"shop:app: the lambda 'price' would be refused: .* never fires"):
        check(["shop:app"])


def test_what_is_well_is_not_commented(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (place / "well.py").write_text("import sys, duly\nprint('noise', file=sys.stderr)\napp = duly.App()\n")

    check(["well:app"])

    assert capfd.readouterr() == ("", "")
    assert "well" not in sys.modules


def test_slots_that_are_reserved_for_a_lambda_that_no_worker_has_are_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "shop.py").write_text(
        "import duly\napp = duly.App()\n@app.callback('billing.charge')\ndef charge(): ...\n"
    )
    monkeypatch.setenv("DULY_EXECUTOR_RESERVED_SLOTS", "biling.charge=1")

    with pytest.raises(SettingsError, match=r"no lambda biling.charge; do you mean billing.charge\?"):
        check(["shop:app"])

    monkeypatch.setenv("DULY_EXECUTOR_RESERVED_SLOTS", "billing.charge=1")
    check(["shop:app"])
