"""The example of chains and checkpoints, one attempt at a time."""

import duly
from duly import testing
from examples.pipeline import Report, app


def test_an_import_keeps_its_place_and_schedules_its_report() -> None:
    attempt = testing.run(app, "pipeline.import", {"source": "orders", "rows": 250})

    assert attempt.checkpoints == (100, 200, 250)
    assert [(each.lambda_name, each.payload) for each in attempt.scheduled] == [
        ("pipeline.report", {"source": "orders", "rows": 250})
    ]
    assert attempt.result["imported"] == 250


def test_an_import_that_fails_schedules_nothing_and_the_next_attempt_goes_on() -> None:
    asked = {"source": "orders", "rows": 250, "fails_at": 200}

    first = testing.run(app, "pipeline.import", asked)
    second = testing.run(app, "pipeline.import", asked, attempt=2, checkpoint=first.checkpoints[-1])

    assert (first.outcome, first.scheduled) == (duly.Outcome.RETRIABLE_FAILURE, ())
    assert (second.outcome, second.result["imported"]) == (duly.Outcome.SUCCESS, 50)
    assert second.scheduled[0].payload == {"source": "orders", "rows": 250}


def test_the_report_says_what_was_imported() -> None:
    assert testing.run(app, "pipeline.report", Report("orders", 250)).result == "250 rows of orders"
