"""GetTrends through a real Frontend: who may read what, which times are refused, and marks of changes."""

import json
from datetime import UTC, datetime, timedelta

import grpc
import pytest

from duly_core.trends import store as trends
from duly_core.trends.store import Mark
from duly_frontend.trends.marks import marks_of
from duly_wire.time_conversion import to_datetime, to_timestamp
from duly_wire.v1 import inspection_pb2, inspection_pb2_grpc
from tests.fixtures.services import refusal
from tests.fixtures.task_states import LAMBDA
from tests.trends.test_trend_store import row

NOW = datetime.now(UTC)
"""When the tests were collected, which may be an hour ago: `recent` is for what an answer of the last hour has."""
HOUR = timedelta(hours=1)


@pytest.fixture
def inspection(frontend):
    return inspection_pb2_grpc.InspectionServiceStub(frontend.channel)


def recent() -> datetime:
    """Return a minute of ten minutes ago."""
    return datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=10)


def request(lambda_name="", since=None, until=None):
    made = inspection_pb2.GetTrendsRequest(
        since=None if since is None else to_timestamp(since),
        until=None if until is None else to_timestamp(until),
    )
    setattr(made, "lambda", lambda_name)
    return made


async def test_a_chart_has_points_by_the_minute_and_what_follows_from_them(store, inspection, task_states):
    at = recent()
    await trends.add_runs(store, [row(LAMBDA, at, starts=9, place=5, ended=8, failed=1)])
    await trends.add_runs(store, [row(LAMBDA, at, place=10)])

    answer = await inspection.GetTrends(request(LAMBDA))

    (point,) = answer.points
    assert to_datetime(point.at) == at
    assert (point.started, point.started_on_time, point.ended, point.failed_runs) == (10, 9, 8, 1)
    assert 0.2 <= point.median_lateness.ToTimedelta().total_seconds() <= 0.5
    assert not point.measured
    assert answer.step.ToTimedelta() == timedelta(minutes=1)
    assert [mark.kind for mark in answer.marks] == [inspection_pb2.TREND_MARK_KIND_VERSION]


async def test_a_week_has_points_by_the_hour(inspection, task_states):
    answer = await inspection.GetTrends(request(LAMBDA, NOW - timedelta(days=7), NOW))

    assert answer.step.ToTimedelta() == HOUR


@pytest.mark.parametrize(
    ("since", "until", "field"),
    [(NOW, NOW - HOUR, "since"), (NOW - timedelta(days=9), NOW, "since"), (NOW, NOW, "since")],
)
async def test_a_time_that_is_none_or_too_long_is_refused(inspection, since, until, field):
    refused = await refusal(inspection.GetTrends(request("", since, until)))

    assert (refused.code, refused.field) == (grpc.StatusCode.INVALID_ARGUMENT, field)


def audit(method, said, actor="ann"):
    return Mark(NOW, actor, method, json.dumps(said))


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        (audit("GateService/PutGate", {"gate": {"name": "mail"}}), "gate mail set"),
        (audit("GateService/DeleteGates", {"names": ["a", "b", "c", "d"]}), "gate a, b, c, ... removed"),
        (audit("GateService/Breaker", {"lambda": "mail.send", "to": "open"}), "breaker of mail.send opened"),
        (audit("SettingsService/SetSettings", {"settings": [{"name": "x.y"}]}), "setting x.y set"),
        (audit("LimitService/PutResource", "no JSON object"), "resource ? set"),
        (Mark(NOW, "", "", "2.0", LAMBDA), f"version 2.0 of {LAMBDA}"),
    ],
)
def test_a_mark_says_what_was_changed(mark, text):
    assert [each.text for each in marks_of([mark])] == [text]


def test_marks_of_a_lambda_are_those_that_may_concern_it():
    marks = [
        audit("GateService/PutGate", {"gate": {"name": "one", "scope": {"lambda": LAMBDA}}}),
        audit("GateService/PutGate", {"gate": {"name": "all", "scope": {"lambda": "*"}}}),
        audit("GateService/PutGate", {"gate": {"name": "other", "scope": {"lambda": f"{LAMBDA}2"}}}),
        audit("SettingsService/SetSettings", {"settings": [{"name": "x.y"}]}),
        Mark(NOW, "", "", "2.0", "other"),
    ]

    assert [each.text for each in marks_of(marks, LAMBDA)] == [
        "setting x.y set",
        "gate all set",
        "gate one set",
    ]


async def test_a_lambda_without_work_in_a_measured_minute_has_a_point_of_nothing(
    store, inspection, task_states
):
    at = recent()
    nothing = {"lambda": "", "scheduled": 0, "dead": 0, "ready": 0, "held": 0, "oldest": None, "slots": 0}
    await trends.add_measured(store, at, [nothing])
    await trends.add_runs(store, [row("", at - timedelta(minutes=1))])

    answer = await inspection.GetTrends(request(LAMBDA))

    assert [(to_datetime(point.at), point.started, point.measured) for point in answer.points] == [
        (at, 0, True)
    ]
