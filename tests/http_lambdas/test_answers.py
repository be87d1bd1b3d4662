"""What an HTTP answer means for the attempt."""

from datetime import UTC, datetime, timedelta

import pytest

from duly import CompleteLater, FatalFailure, RetriableFailure, Snooze, Success
from duly.http_lambdas.answers import outcome_of

HOUR = timedelta(hours=1)
NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
JSON = {"content-type": "application/json; charset=utf-8"}


@pytest.mark.parametrize(
    ("status", "headers", "body", "result"),
    [
        (200, JSON, b'{"id": 3}', {"id": 3}),
        (201, {"content-type": "application/problem+json"}, b"[1]", [1]),
        (200, {"content-type": "text/plain"}, "grüße".encode(), "grüße"),
        (200, {"content-type": "text/plain"}, b"\xff", b"\xff"),
        (200, {"content-type": "image/png"}, b"\x89PNG", b"\x89PNG"),
        (200, {}, b"as it is", b"as it is"),
        (204, {}, b"", None),
        (200, JSON, b"", None),
    ],
)
def test_the_body_of_a_success_is_the_result(status, headers, body, result) -> None:
    assert outcome_of(status, headers, body, NOW, HOUR) == Success(result)


@pytest.mark.parametrize(
    ("status", "headers", "delay"),
    [
        (429, {"retry-after": "120"}, timedelta(minutes=2)),
        (503, {"retry-after": "Thu, 26 Nov 2026 12:00:30 GMT"}, timedelta(seconds=30)),
        (503, {"retry-after": "Thu, 26 Nov 2026 11:00:00 GMT"}, timedelta()),
        (429, {"retry-after": "9" * 5_000}, timedelta(days=1)),
        (429, {"retry-after": "Thu, 26 Nov 9999 12:00:00 GMT"}, timedelta(days=1)),
        (429, {"retry-after": "-1"}, None),
        (429, {"retry-after": "soon"}, None),
        (429, {"retry-after": "٣"}, None),
        (503, {}, None),
        (500, {"retry-after": "120"}, None),
        (502, {}, None),
        (599, {}, None),
        (408, {}, None),
        (425, {}, None),
    ],
)
def test_a_receiver_that_cannot_now_is_asked_again(status, headers, delay) -> None:
    outcome = outcome_of(status, headers, b"its own words", NOW, HOUR)

    assert outcome == RetriableFailure(f"the receiver answered {status}", delay)


@pytest.mark.parametrize(
    ("asked", "delay"),
    [("30", timedelta(seconds=30)), ("0", timedelta(seconds=1)), ("9" * 30, timedelta(days=1))],
)
def test_a_receiver_that_accepted_the_work_is_asked_again_uncharged(asked, delay) -> None:
    assert outcome_of(202, {"retry-after": asked}, b"", NOW, HOUR) == Snooze(delay)


@pytest.mark.parametrize("asked", ["soon", "", "-1"])
@pytest.mark.parametrize("timeout", [HOUR, None])
def test_a_receiver_that_asks_for_a_repeat_in_no_readable_time_fails(asked, timeout) -> None:
    assert outcome_of(202, {"retry-after": asked}, b"", NOW, timeout) == RetriableFailure(
        "the receiver answered 202 with a Retry-After that is neither seconds nor a date"
    )


@pytest.mark.parametrize("headers", [{}, {"content-encoding": "gzip"}])
def test_a_receiver_that_accepted_the_work_completes_it_by_token(headers) -> None:
    assert outcome_of(202, headers, b"its own words", NOW, HOUR) == CompleteLater(HOUR)


def test_a_webhook_whose_receiver_has_accepted_it_is_done():
    assert outcome_of(202, {}, b"accepted", NOW, None) == Success()
    assert outcome_of(202, {"retry-after": "5"}, b"", NOW, None) == Snooze(timedelta(seconds=5))


@pytest.mark.parametrize(
    ("status", "headers", "body", "message"),
    [
        (400, {}, b"its own words", "the receiver answered 400"),
        (401, {}, b"", "the receiver answered 401"),
        (422, JSON, b"{}", "the receiver answered 422"),
        (200, JSON, b'{"$duly.attachment": {"hash": "00"}}', "names an attachment"),
        (200, JSON, b'[{"\\u0024duly.attachment": {"hash": "00"}}]', "names an attachment"),
        (
            302,
            {"location": "http://u:p@169.254.169.254/secret?q=1"},
            b"",
            "a redirect to '169.254.169.254': Duly follows none",
        ),
        (307, {"location": "/elsewhere"}, b"", "answered 307, a redirect: Duly follows none"),
        (301, {"location": "http://[oops"}, b"", "answered 301, a redirect: Duly follows none"),
        (308, {"location": f"http://{'a' * 9_000}/"}, b"", "answered 308, a redirect to"),
        (304, {}, b"", "answered 304, a redirect"),
        (200, JSON, b'{"a": NaN}', "says that it is JSON, and is not JSON"),
        (200, JSON, b"\xff\xfe", "says that it is JSON, and is not JSON: not UTF-8"),
        (200, JSON, None, "larger than the lambda's result_limit"),
        (200, {"content-encoding": "gzip"}, b"\x1f\x8b", "compressed its answer"),
    ],
)
def test_an_answer_that_will_not_change_ends_the_task(status, headers, body, message) -> None:
    outcome = outcome_of(status, headers, body, NOW, HOUR)

    assert isinstance(outcome, FatalFailure)
    assert message in outcome.message
    assert "secret" not in outcome.message
    assert "own words" not in outcome.message
    assert len(outcome.message) < 400
