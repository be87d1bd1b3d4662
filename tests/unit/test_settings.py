"""Settings: where each comes from, which one wins, and what an operator is told about a bad one."""

from datetime import timedelta
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from duly_core.errors import SettingsError
from duly_core.settings import Duration, Section, format_duration, parse_duration


class Kitchen(Section):
    """A section of which only these tests know."""

    SECTION: ClassVar[str] = "kitchen"

    cooks: int = 2
    simmer: Duration = timedelta(minutes=5)
    name: str = "main"


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """A working folder without a duly.toml."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DULY_CONFIG", raising=False)
    return tmp_path


def write(folder, text, name="duly.toml"):
    (folder / name).write_text(text, encoding="utf-8")


def problem_of(**overrides):
    with pytest.raises(SettingsError) as caught:
        Kitchen.load(**overrides)
    return str(caught.value)


def test_what_nobody_says_has_its_default():
    assert Kitchen.load() == Kitchen(cooks=2, simmer=timedelta(minutes=5), name="main")


def test_the_caller_comes_before_the_environment_and_that_before_the_file(folder, monkeypatch):
    write(folder, '[kitchen]\ncooks = 3\nname = "file"\nsimmer = "3m"\n')
    monkeypatch.setenv("DULY_KITCHEN_COOKS", "4")
    monkeypatch.setenv("DULY_KITCHEN_SIMMER", "4m")

    kitchen = Kitchen.load(cooks=5, simmer=None)

    assert (kitchen.cooks, kitchen.simmer, kitchen.name) == (5, timedelta(minutes=4), "file")


def test_the_file_may_be_named_and_then_must_be_there(folder, monkeypatch):
    write(folder, "[kitchen]\ncooks = 7\n", "other.toml")
    monkeypatch.setenv("DULY_CONFIG", "other.toml")
    assert Kitchen.load().cooks == 7

    monkeypatch.setenv("DULY_CONFIG", "missing.toml")

    assert problem_of() == "DULY_CONFIG names missing.toml, which does not exist"


def test_a_file_may_leave_a_section_out_and_hold_others(folder):
    write(folder, "[garden]\nrakes = 1\n")

    assert Kitchen.load() == Kitchen()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[kitchen\n", "duly.toml is not TOML"),
        ("kitchen = 3\n", "[kitchen] must be a table"),
        ("[kitchen]\ncoks = 3\n", "there is no setting kitchen.coks; do you mean kitchen.cooks?"),
        ('[kitchen]\ncooks = "many"\n', "kitchen.cooks (environment: DULY_KITCHEN_COOKS)"),
        ('[kitchen]\nsimmer = "5"\n', "'5' is no duration: write a number and a unit, such as 250ms"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(folder, text, told):
    write(folder, text)

    assert told in problem_of()


def test_a_file_that_is_no_text_is_refused(folder):
    (folder / "duly.toml").write_bytes(b"\xff\xfe")

    assert "duly.toml is not TOML" in problem_of()


def test_a_bad_variable_is_named(monkeypatch):
    monkeypatch.setenv("DULY_KITCHEN_SIMMER", "5 parsecs")

    assert problem_of() == (
        "kitchen.simmer (environment: DULY_KITCHEN_SIMMER): '5 parsecs' is no duration: "
        "write a number and a unit, such as 250ms, 2s, 1m30s, 7d"
    )


def test_every_bad_setting_is_told_at_once(monkeypatch):
    monkeypatch.setenv("DULY_KITCHEN_SIMMER", "x")
    monkeypatch.setenv("DULY_KITCHEN_COOKS", "y")

    assert {"DULY_KITCHEN_SIMMER", "DULY_KITCHEN_COOKS"} <= set(problem_of().replace(")", " ").split())


def test_a_misspelt_variable_is_refused_and_the_one_that_was_meant_is_named(monkeypatch):
    monkeypatch.setenv("DULY_KITCHEN_COKS", "9")

    assert problem_of() == "DULY_KITCHEN_COKS: there is no setting kitchen.coks; do you mean kitchen.cooks?"


def test_variables_of_other_sections_are_passed_over(monkeypatch):
    monkeypatch.setenv("DULY_KITCHENETTE_COOKS", "9")

    assert Kitchen.load() == Kitchen()


def test_a_section_whose_name_begins_like_anothers_is_not_mistaken_for_it(monkeypatch):
    from duly_core.store.settings import StoreSettings

    monkeypatch.setenv("DULY_STORE_CONSUMER_LISTEN", "127.0.0.1:1")
    monkeypatch.setenv("DULY_STORE_CONNECTIONS", "9")

    assert StoreSettings.load().connections == 9


def test_settings_do_not_change():
    with pytest.raises(ValidationError, match="frozen"):
        Kitchen().cooks = 3


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("250ms", timedelta(milliseconds=250)),
        ("2s", timedelta(seconds=2)),
        ("1m30s", timedelta(seconds=90)),
        ("1m 30s", timedelta(seconds=90)),
        ("7d", timedelta(days=7)),
        ("0.5h", timedelta(minutes=30)),
        ("10us", timedelta(microseconds=10)),
        ("0s", timedelta()),
    ],
)
def test_durations_are_read(text, duration):
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    "text", ["", "5", "s", "-5s", "5 s s", "5sec", "PT5S", "1e3s", "5s!", "५s5", "1.s", "nan"]
)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="is no duration"):
        parse_duration(text)


def test_a_duration_longer_than_any_calendar_is_refused_like_any_other(monkeypatch):
    monkeypatch.setenv("DULY_KITCHEN_SIMMER", "9999999999999d")

    assert "DULY_KITCHEN_SIMMER" in problem_of()


@given(st.timedeltas(min_value=timedelta(), max_value=timedelta(days=10_000)))
def test_a_duration_that_is_written_reads_back(duration):
    assert parse_duration(format_duration(duration)) == duration


def test_a_folder_in_the_place_of_the_file_is_told_in_one_line(folder, monkeypatch):
    monkeypatch.setenv("DULY_CONFIG", str(folder))

    assert problem_of() == f"{folder} cannot be read: Is a directory"
