"""`duly config` shows every setting, and no password."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from duly_cli.__main__ import app
from duly_cli.settings.all_settings_text import example_toml, shown
from duly_local.all_settings import sections


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ann:s3cret@db:5432/duly",
        "postgresql://db/duly?user=ann&password=s3cret&sslmode=require",
        "host=db password=s3cret user=ann",
        "host=db password = 's3cret it\\'s s3cret' user=ann",
        "sslpassword=s3cret host=db",
    ],
)
def test_a_password_is_not_shown_and_the_rest_is(address: str) -> None:
    text = shown(address)

    assert "s3cret" not in text
    assert "***" in text
    assert "db" in text


def test_an_address_without_a_password_is_shown_as_it_is() -> None:
    assert shown("postgresql://duly@127.0.0.1:5432/duly") == "postgresql://duly@127.0.0.1:5432/duly"
    assert shown("host=db user=ann") == "host=db user=ann"


def test_unknown_names_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DULY_CONFIG", raising=False)
    monkeypatch.setenv("DULY_FRONTED_LISTEN", "127.0.0.1:1")
    warned = CliRunner().invoke(app, ["config"])
    (tmp_path / "duly.toml").write_text("[fronted]\n", encoding="utf-8")
    refused = CliRunner().invoke(app, ["config"])

    assert warned.exit_code == 0
    assert "DULY_FRONTED_LISTEN is not a setting; do you mean DULY_FRONTEND_...?" in warned.stderr
    assert refused.exit_code == 78
    assert "there is no section [fronted]; do you mean [frontend]?" in refused.stderr


def test_the_file_of_all_defaults_can_be_read_and_has_the_defaults(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DULY_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    defaults = {section: section.load() for section in sections()}

    lines = re.sub(r"^#(\w+ = )", r"\1", example_toml(), flags=re.MULTILINE)
    (tmp_path / "duly.toml").write_text(lines, encoding="utf-8")

    assert {section: section.load() for section in sections()} == defaults
