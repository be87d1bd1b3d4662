from datetime import datetime, timedelta

import pytest

import duly
from duly.testing import run


@pytest.fixture
def app():
    app = duly.App()

    @app.callback("report.build", payload_limit=100)
    async def build(payload, ctx):
        ctx.progress(0.5, "half")
        ctx.progress(1)
        return [ctx.attempt, ctx.fence, ctx.priority.name, ctx.deadline - ctx.due_at < timedelta(hours=2)]

    return app


def test_the_callback_sees_the_attempt_the_test_describes(app):
    attempt = run(app, "report.build", attempt=3, fence=7, priority=duly.Priority.URGENT)

    assert attempt.result == [3, 7, "URGENT", True]
    assert attempt.progress == ((0.5, "half"), (1.0, ""))


async def test_an_async_callback_can_be_run_from_an_async_test(app):
    assert run(app, "report.build").outcome is duly.Outcome.SUCCESS


def test_what_could_not_be_scheduled_cannot_be_run_either(app):
    with pytest.raises(duly.EncodingError):
        run(app, "report.build", {1j})
    with pytest.raises(duly.PayloadTooLargeError, match=r"the limit of 'report\.build' is 100"):
        run(app, "report.build", "x" * 100)
    with pytest.raises(duly.UnknownLambdaError, match=r"it has: report\.build"):
        run(app, "report.send")
    for name in ("due_at", "tick_at"):
        with pytest.raises(duly.InvalidTaskError, match=f"{name} has no time zone"):
            run(app, "report.build", **{name: datetime(2030, 1, 1)})  # noqa: DTZ001 (the point)
