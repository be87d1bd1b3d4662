"""Settings: where each comes from, which one wins, and what an operator is told about a bad one."""

import traceback
from datetime import timedelta
from typing import ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from duly_core.config import section_names as settings_sections
from duly_core.config.section_names import misspelt_variables
from duly_core.config.settings import Duration, Section, format_duration, parse_duration
from duly_core.errors import SettingsError
from duly_core.live_settings import definitions as live_settings


class Table(BaseModel):
    """A table of the section."""

    model_config = ConfigDict(extra="forbid")

    seats: int = 4


class Kitchen(Section):
    """A section of which only these tests know."""

    SECTION: ClassVar[str] = "kitchen"

    cooks: int = 2
    simmer: Duration = timedelta(minutes=5)
    name: str = "main"
    open: bool = True
    stars: int = Field(default=1, le=5)
    style: Literal["plain", "fine"] = "plain"
    rest: Duration = Field(default=timedelta(hours=1), ge=timedelta(minutes=1))
    guests: tuple[str, ...] = ()
    tables: dict[str, Table] = Field(default={})


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """A working folder without a duly.toml; to Duly the section is one of its own."""
    monkeypatch.setattr(settings_sections, "SECTIONS", (*settings_sections.SECTIONS, "kitchen"))
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
    write(folder, "[frontend]\nmax_group = 1\n")

    assert Kitchen.load() == Kitchen()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[kitchen\n", "duly.toml is not TOML"),
        ("kitchen = 3\n", "[kitchen] must be a table"),
        ("[kitchen]\ncoks = 3\n", "there is no setting kitchen.coks; do you mean kitchen.cooks?"),
        ("[kitchn]\ncooks = 3\n", "duly.toml: there is no section [kitchn]; do you mean [kitchen]?"),
        (
            "[garden]\nrakes = 1\n",
            "duly.toml: there is no section [garden]: there are frontend, store_consumer, ",
        ),
        ('[kitchen]\ncooks = "many"\n', "kitchen.cooks (duly.toml): must be a whole number, not 'many'"),
        ("[kitchen]\nname = 7\n", "kitchen.name (duly.toml): must be text in quotes, not 7"),
        ("[kitchen]\nopen = 7\n", "kitchen.open (duly.toml): must be true or false, not 7"),
        ("[kitchen]\nstars = 6\n", "kitchen.stars (duly.toml): must be at most 5, not 6"),
        ('[kitchen]\nstyle = "raw"\n', "kitchen.style (duly.toml): must be 'plain' or 'fine', not 'raw'"),
        ('[kitchen]\nrest = "1s"\n', "kitchen.rest (duly.toml): must be at least 1 minute"),
        ("[kitchen]\nsimmer = [5]\n", "kitchen.simmer (duly.toml): must be a duration in quotes, such as"),
        (
            '[kitchen.tables.round]\nseats = "few"\n',
            "kitchen.tables.round.seats (duly.toml): must be a whole number",
        ),
        (
            "[kitchen.tables.round]\nseat = 4\n",
            "kitchen.tables.round.seat (duly.toml): there is no such setting",
        ),
        ("[kitchen]\nguests = [7]\n", "kitchen.guests.0 (duly.toml): must be text in quotes, not 7"),
        ('[kitchen]\nsimmer = "5"\n', "'5' is not a duration: write a number and a unit, such as 250ms"),
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
        "kitchen.simmer (environment: DULY_KITCHEN_SIMMER): '5 parsecs' is not a duration: "
        "write a number and a unit, such as 250ms, 2s, 1m30s, 7d"
    )


@pytest.mark.parametrize("variable", ["DULY_KITCHEN_GUESTS", "DULY_KITCHEN_TABLES"])
def test_a_variable_that_is_no_json_is_told_without_its_value(monkeypatch, variable):
    monkeypatch.setenv(variable, "s3cret")

    field = variable.removeprefix("DULY_KITCHEN_").lower()
    assert problem_of().startswith(
        f"kitchen.{field} (environment: {variable}): must be JSON: a list, such as "
    )
    assert "s3cret" not in problem_of()


def test_a_list_and_a_table_in_the_environment_are_json(monkeypatch):
    monkeypatch.setenv("DULY_KITCHEN_GUESTS", '["ann"]')
    monkeypatch.setenv("DULY_KITCHEN_TABLES", '{"round": {"seats": 6}}')

    assert (Kitchen.load().guests, Kitchen.load().tables) == (("ann",), {"round": Table(seats=6)})


def test_a_bad_value_is_looked_for_where_it_comes_from(folder, monkeypatch):
    write(folder, '[kitchen]\ncooks = "many"\n')
    monkeypatch.setenv("DULY_KITCHEN_COOKS", "few")

    assert problem_of().startswith(
        "kitchen.cooks (environment: DULY_KITCHEN_COOKS): must be a whole number, not 'few'"
    )
    assert problem_of(cooks="none").startswith(
        "kitchen.cooks (command line): must be a whole number, not 'none'"
    )


def test_what_a_table_of_the_environment_has_is_looked_for_there(monkeypatch):
    monkeypatch.setenv("DULY_KITCHEN_TABLES", '{"round": {"seats": "few"}}')

    assert problem_of().startswith("kitchen.tables.round.seats (environment: DULY_KITCHEN_TABLES): must be ")


def test_a_key_that_is_a_url_is_told_without_its_path_even_in_a_traceback(folder):
    write(folder, '[kitchen.tables."https://hooks.example.com/s3cret"]\nseats = "few"\n')
    with pytest.raises(SettingsError) as caught:
        Kitchen.load()

    assert str(caught.value).startswith("kitchen.tables.https:/***.seats (duly.toml): must be a whole number")
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


def test_every_bad_setting_is_told_at_once(monkeypatch):
    monkeypatch.setenv("DULY_KITCHEN_SIMMER", "x")
    monkeypatch.setenv("DULY_KITCHEN_COOKS", "y")

    assert {"DULY_KITCHEN_SIMMER", "DULY_KITCHEN_COOKS"} <= set(problem_of().replace(")", " ").split())


def test_a_misspelt_variable_is_refused_and_the_one_that_was_meant_is_named(monkeypatch):
    monkeypatch.setenv("DULY_KITCHEN_COKS", "9")

    assert problem_of() == "DULY_KITCHEN_COKS: there is no setting kitchen.coks; do you mean kitchen.cooks?"


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("DULY_FRONTED_LISTEN", "DULY_FRONTEND_"),
        ("DULY_EXECUTR_SLOTS", "DULY_EXECUTOR_"),
        ("DULY_STORE_CONSUMMER_LISTEN", None),  # the store's, which refuses it
        ("DULY_STORECONSUMER_LISTEN", "DULY_STORE_CONSUMER_"),
        ("DULY_STOR_CONSUMER_LISTEN", "DULY_STORE_CONSUMER_"),
        ("DULY_RCP_CALL_TIMEOUT", "DULY_RPC_"),
        ("DULLY_FRONTED_LISTEN", None),
    ],
)
def test_a_variable_whose_section_is_misspelt_is_told_with_what_was_meant(variable, meant):
    assert misspelt_variables({variable: "1"}) == ({variable: meant} if meant else {})


@pytest.mark.parametrize(
    "variable",
    [
        *(
            "DULY_ADDRESS",
            "DULY_CONFIG",
            "DULY_APP",
            "DULY_DB_PASSWORD",
            "DULY_FAILPOINTS",
            "DULY_FAILPOINTS_FOLDER",
            "DULY_POSTGRES_BIN",
        ),
        *(
            "DULY_TEST_DSN",
            "DULY_TEST_JOURNAL",
            "DULY_MODEL_EXAMPLES",
            "DULY_CHAOS_RUN",
            "DULY_BENCH_FRONTEND",
        ),
        *("DULY_EXECUTOR_SLOTS", "DULY_STORE_CONSUMER_LISTEN", "DULY_", "DULY", "PATH"),
    ],
)
def test_a_variable_that_has_to_do_with_duly_is_no_misspelt_setting(variable):
    assert misspelt_variables({variable: "1"}) == {}


def test_variables_of_other_sections_are_passed_over(monkeypatch):
    monkeypatch.setenv("DULY_KITCHENETTE_COOKS", "9")

    assert Kitchen.load() == Kitchen()


def test_a_section_whose_name_begins_like_anothers_is_not_mistaken_for_it(monkeypatch):
    from duly_core.postgres.settings import StoreSettings

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
    with pytest.raises(ValueError, match="is not a duration"):
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


@pytest.mark.parametrize(("text", "reason"), [("5ms", "must be at least 10ms"), ("9d", "must be at most")])
def test_a_duration_that_is_out_of_bounds_is_refused_in_words_that_durations_have(text, reason):
    with pytest.raises(SettingsError, match=reason) as refused:
        live_settings.read("store_consumer.poll_interval", text)

    assert "microseconds" not in str(refused.value)
