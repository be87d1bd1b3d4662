"""The example of periodic tasks: what its callbacks make of the tick that they run for."""

from datetime import UTC, datetime

from duly import testing
from examples import periodic

TICK = datetime(2026, 11, 23, 9, tzinfo=UTC)


def test_a_report_covers_the_hour_before_its_tick() -> None:
    attempt = testing.run(periodic.app, "report.build", "sales", tick_at=TICK, attempt=3)

    assert attempt.result["to"] == TICK.isoformat()
    assert attempt.result["from"] == "2026-11-23T08:00:00+00:00"


def test_the_time_tables_are_declared_with_their_lambdas() -> None:
    declared = {
        lambda_.name: [table.name for table in lambda_.time_tables] for lambda_ in periodic.app.lambdas()
    }

    assert declared == {"report.build": ["report.hourly"], "heartbeat.note": ["heartbeat"]}
