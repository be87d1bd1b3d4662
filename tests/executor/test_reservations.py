"""The setting `executor.reserved_slots`."""

from pathlib import Path

import pytest

from duly_core.errors import SettingsError
from duly_executor.settings import ExecutorSettings
from duly_executor.slots.reservations import Reservation, check_served, parse_reservations
from duly_wire.enums import Priority
from tests.fixtures.forked_process import ROOT

BILLING = Reservation("billing", None, 2)
MAIL = Reservation("mail", Priority.HIGH, 1)


@pytest.mark.parametrize(
    "written",
    [
        "billing=2,mail:high=1",
        " billing = 2 , mail:high = 1 ",
        {"billing": 2, "mail:high": 1},
    ],
)
def test_a_text_and_a_table_of_the_file_say_the_same(written: object) -> None:
    settings = ExecutorSettings.load(reserved_slots=written)

    assert settings.reservations == (BILLING, MAIL)
    assert settings.reserved_slots == "billing=2, mail:high=1"


def test_a_name_with_a_point_needs_no_quotes_in_the_file() -> None:
    settings = ExecutorSettings.load(reserved_slots={"mail": {"send": 1, "large": {"send:low": 2}}})

    assert [each.whose for each in settings.reservations] == ["mail.send", "mail.large.send:low"]


def test_the_example_of_the_documentation_is_read_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    (tmp_path / "duly.toml").write_text(page.partition("```toml\n")[2].partition("```")[0], encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    settings = ExecutorSettings.load()

    assert settings.reserved_slots == "billing.charge=2, mail.send:high=1"
    assert settings.reserved_slots in page


def test_without_the_setting_nothing_is_reserved() -> None:
    assert ExecutorSettings.load().reservations == ()


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("billing", "'billing' is not a reservation"),
        ('{"billing": 2}', "is not a reservation"),
        ("Bill ing=2", "'Bill ing' is not the name of a lambda"),
        ("mail:hgh=1", "'hgh' is not a priority; use urgent, high, normal, low, or mail for all"),
        ("billing=-1", "'billing' must reserve 1 slot or more, not -1"),
        ("billing=0", "'billing' must reserve 1 slot or more, not 0: to reserve none, leave it out"),
        ({"billing": 1.5}, "'billing' must reserve 1 slot or more, not 1.5"),
        ({"billing": True}, "'billing' must reserve 1 slot or more, not true"),
        (
            "mail=1, mail:low=1",
            "for mail and for mail:low: reserve for all priorities of a lambda, or for single",
        ),
        ("mail:low=1, mail:low=1", "reserves slots for mail:low twice: write their sum once"),
        (",".join(f"n{number}=1" for number in range(33)), "has 33 reservations: there may be 32 at most"),
        (2, "must be a table or a text: write"),
        ("billing=9", "reserves 9 slots, but an Executor has 8 (executor.processes 1 x executor.slots 8)"),
    ],
)
def test_a_reservation_that_cannot_be_meant_is_refused_with_what_to_write(
    written: object, problem: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        ExecutorSettings.load(reserved_slots=written)

    assert problem in str(refused.value)
    assert "reserved_slots" in str(refused.value)


def test_the_slots_of_all_processes_count() -> None:
    assert ExecutorSettings.load(reserved_slots="billing=16", processes=2, slots=8).reservations


def test_a_lambda_that_the_application_has_not_is_refused_with_the_one_that_may_be_meant() -> None:
    with pytest.raises(SettingsError, match=r"app:app has no lambda biling; do you mean billing\?"):
        check_served(parse_reservations("mail=1, biling=1"), ["mail", "billing"], "app:app")

    check_served((BILLING, MAIL), ["mail", "billing"], "app:app")
