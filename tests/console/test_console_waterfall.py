"""The waterfall of a task: how long each run was queued, claimed and ran, from the events of its history."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from duly_console.waterfall import WIDTH, Phase, bars, waterfall
from duly_wire.time_conversion import to_timestamp
from duly_wire.v1 import explain_pb2, task_pb2

NOW = datetime(2026, 11, 27, 3, tzinfo=UTC)
ALL_KINDS = sorted(set(explain_pb2.HistoryKind.values()) - {0})


def event(name, seconds, due=None, **fields):
    made = explain_pb2.HistoryEvent(kind=getattr(explain_pb2, f"HISTORY_KIND_{name}"), **fields)
    made.happened_at.CopyFrom(to_timestamp(NOW + timedelta(seconds=seconds)))
    if due is not None:
        made.next_trigger_at.CopyFrom(to_timestamp(NOW + timedelta(seconds=due)))
    return made


def parts(rows):
    return [[(part.phase, part.length.total_seconds()) for part in row.parts] for row in rows]


def test_a_retry_is_two_runs_with_the_backoff_before_the_second():
    rows = waterfall(
        [
            event("SCHEDULED", 0, due=10),
            event("CLAIMED", 12, fence=1, attempt=1, holder="h"),
            event("STARTED", 13, fence=1, attempt=1, holder="h"),
            event("RUN_ENDED", 20, due=50, fence=1, attempt=1, holder="h", outcome=1, reason="it failed"),
            event("CLAIMED", 51, fence=2, attempt=2),
            event("STARTED", 51, fence=2, attempt=2),
            event("ENDED", 60, status=task_pb2.TASK_STATUS_SUCCESS),
        ],
        NOW + timedelta(hours=1),
    )

    assert parts(rows) == [
        [(Phase.LATER, 10), (Phase.QUEUED, 2), (Phase.CLAIMED, 1), (Phase.RUN, 7)],
        [(Phase.LATER, 30), (Phase.QUEUED, 1), (Phase.RUN, 9)],
    ]
    assert [(row.fence, row.attempt, row.status, row.reason) for row in rows] == [
        (1, 1, 0, "it failed"),
        (2, 2, task_pb2.TASK_STATUS_SUCCESS, ""),
    ]
    assert rows[0].length(Phase.QUEUED) == "2 s"
    assert not rows[1].is_open


def test_a_callback_that_runs_has_run_since_the_claim_while_nothing_else_is_known():
    history = [event("SCHEDULED", 0, due=0), event("CLAIMED", 2, fence=1)]
    now = NOW + timedelta(seconds=62)

    assert parts(waterfall(history, now)) == [[(Phase.QUEUED, 2), (Phase.CLAIMED, 60)]]
    assert parts(waterfall(history, now, is_processing=True)) == [[(Phase.QUEUED, 2), (Phase.RUN, 60)]]
    assert parts(waterfall([*history, event("RUN_ENDED", 9, fence=1)], now, is_processing=True)) == [
        [(Phase.QUEUED, 2), (Phase.CLAIMED, 7)]
    ]


def test_what_goes_on_has_a_row_that_is_open():
    rows = waterfall(
        [event("SCHEDULED", 0, due=0), event("PARKED", 5), event("UNPARKED", 8)], NOW + timedelta(seconds=9)
    )

    assert parts(rows) == [[(Phase.QUEUED, 5), (Phase.WAITS, 3), (Phase.QUEUED, 1)]]
    assert rows[0].is_open


def test_a_run_that_waits_for_an_event_ends_and_its_task_waits():
    rows = waterfall(
        [
            event("SCHEDULED", 0, due=0),
            event("CLAIMED", 1, fence=1),
            event("STARTED", 2, fence=1),
            event("EVENT_AWAITED", 4),
            event("EVENT_RECEIVED", 100),
            event("CLAIMED", 101, fence=2),
        ],
        NOW + timedelta(seconds=102),
    )

    assert parts(rows) == [
        [(Phase.QUEUED, 1), (Phase.CLAIMED, 1), (Phase.RUN, 2)],
        [(Phase.WAITS, 96), (Phase.QUEUED, 1), (Phase.CLAIMED, 1)],
    ]


def test_a_task_that_ends_without_a_run_has_one_row():
    rows = waterfall(
        [event("SCHEDULED", 0), event("ENDED", 5, status=task_pb2.TASK_STATUS_CANCELLED)],
        NOW + timedelta(hours=1),
    )

    assert parts(rows) == [[(Phase.WAITS, 5)]]
    assert rows[0].status == task_pb2.TASK_STATUS_CANCELLED


def test_the_last_failure_and_the_end_that_follows_it_are_one_row():
    rows = waterfall(
        [
            event("SCHEDULED", 0, due=0),
            event("CLAIMED", 1, fence=1),
            event("STARTED", 1, fence=1),
            event("RUN_ENDED", 2, fence=1, outcome=2, reason="no"),
            event("ENDED", 2, status=task_pb2.TASK_STATUS_FATAL_FAILURE, fence=1, reason="no"),
        ],
        NOW + timedelta(hours=1),
    )

    assert [(row.fence, row.status, row.is_open) for row in rows] == [
        (1, task_pb2.TASK_STATUS_FATAL_FAILURE, False)
    ]


def test_the_time_until_it_was_first_to_run_takes_no_place():
    rows = waterfall(
        [
            event("SCHEDULED", 0, due=86_400),
            event("CLAIMED", 86_401, fence=1),
            event("STARTED", 86_402, fence=1),
        ],
        NOW + timedelta(seconds=86_410),
    )

    ((queued, claimed, run),) = bars(rows)

    assert (queued.x, queued.width, run.width) == (0, 100, 800)
    assert claimed.title == "claimed 1 s"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(ALL_KINDS),
            st.integers(0, 1_000),
            st.none() | st.integers(0, 2_000),
            st.integers(0, 3),
        ),
        max_size=30,
    )
)
def test_any_history_has_rows_whose_parts_follow_each_other_and_bars_within_the_width(told):
    history = []
    for kind, at, due, fence in sorted(told, key=lambda each: each[1]):
        made = event("SCHEDULED", at, due, fence=fence)
        made.kind = kind
        history.append(made)

    rows = waterfall(history, NOW + timedelta(seconds=1_000))

    for row in rows:
        assert all(part.length >= timedelta() for part in row.parts)
        assert all(a.ends_at <= b.begins_at for a, b in zip(row.parts, row.parts[1:], strict=False))
    for row in bars(rows):
        assert all(bar.width >= 1 and 0 <= bar.x <= WIDTH and bar.x + bar.width <= WIDTH for bar in row)
