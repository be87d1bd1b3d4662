"""Time tables as an application declares them: what is wrong is found when it is imported."""

from datetime import timedelta

import pytest

import duly
from duly_wire.v1 import time_tables_pb2

HOUR = timedelta(hours=1)


@pytest.fixture
def app():
    made = duly.App()

    @made.callback("mail.send")
    def send():
        pass

    return made


def test_a_time_table_travels_with_its_lambda(app):
    app.time_table("mail.daily", "mail.send", {"to": "ann"}, cron="@daily", zone="Asia/Tokyo", jitter=HOUR)

    ((table,),) = [declared.time_tables for declared in app.lambdas()]

    assert (table.name, table.cron, table.zone, table.payload) == (
        "mail.daily", "@daily", "Asia/Tokyo", b'{"to":"ann"}',
    )  # fmt: skip
    assert table.catch_up == time_tables_pb2.CATCH_UP_ONE
    assert table.overlap == time_tables_pb2.OVERLAP_ALLOW
    assert table.jitter.ToTimedelta() == HOUR


@pytest.mark.parametrize(
    ("lambda_name", "options", "said"),
    [
        ("mail.send", {}, "either cron or every"),
        ("mail.send", {"cron": "@daily", "every": HOUR}, "either cron or every"),
        ("mail.send", {"cron": "61 7 * * *"}, "61 is no minute, which is 0 to 59"),
        ("mail.send", {"cron": "0 7 * *"}, "it has 4 fields, and not five"),
        ("mail.send", {"cron": "0 7 * * MOND-FRI"}, "MOND is no day of the week"),
        ("mail.send", {"cron": "0 7,,8 * * *"}, "an item of the hour is empty"),
        ("mail.send", {"every": 60}, "every must be a timedelta, not int"),
        ("mail.send", {"cron": 5}, "cron must be a str, not int"),
        ("mail.send", {"every": HOUR, "overlap": "skip"}, "duly.Overlap.SKIP"),
        ("mail.send", {"every": HOUR, "catch_up": 9}, "duly.CatchUp"),
        ("mail.send", {"every": HOUR, "often": True}, "often"),
        ("mail.sort", {"every": HOUR}, "has no lambda 'mail.sort'"),
    ],
)
def test_what_could_never_work_is_refused_at_import(app, lambda_name, options, said):
    with pytest.raises(duly.RegistrationError, match=said) as refused:
        app.time_table("mail.daily", lambda_name, **options)

    assert "mail.daily" in str(refused.value)


def test_a_name_is_declared_once(app):
    app.time_table("mail.daily", "mail.send", every=HOUR)

    with pytest.raises(duly.RegistrationError, match="declared twice"):
        app.time_table("mail.daily", "mail.send", every=HOUR)
