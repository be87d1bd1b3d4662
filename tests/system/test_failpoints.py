"""Every failpoint of the product, without a queue or over SQS, with everything that can happen there, in a stack of real processes."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.fixtures import failpoint_engine
from tests.fixtures.campaign import OVER_SQS, WITHOUT_A_QUEUE, Campaign
from tests.fixtures.failpoint_table import FAILPOINTS
from tests.fixtures.failpoints import Failpoints
from tests.fixtures.whole_stack import WholeStack

APP = "tests.fixtures.journaled:app"

QUICK = {
    "DULY_TIMING_HEARTBEAT_PERIOD": "1s",
    "DULY_TIMING_HEARTBEAT_DEADLINE": "600ms",
    "DULY_TIMING_SCHEDULING_LATENESS": "300ms",
    "DULY_TIMING_PROCESS_DEADLINE": "4s",
    "DULY_TIMING_HEARTBEAT_TIMEOUT": "5s",
    "DULY_TIMING_CLAIM_TIMEOUT": "5s",
    "DULY_TIMING_KILL_LATENCY": "200ms",
    "DULY_TIMING_CLOCK_STEP": "500ms",
    "DULY_STORE_CONSUMER_ENQUEUE_TIMEOUT": "2s",
    "DULY_STORE_CONSUMER_PUT_BACK_DELAY": "500ms",
    "DULY_EXECUTOR_DRAIN_GRACE": "300ms",
    "DULY_QUEUE_VISIBILITY": "10s",
    "DULY_CONTROLLER_DWELL_MARGIN": "2s",
}

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(400)]  # long: minutes


class QuickStack(WholeStack):
    program = ("tests.fixtures.quick_stack",)
    ready_within = timedelta(seconds=120)


POINTS = {"store": WITHOUT_A_QUEUE, "sqs": OVER_SQS}


@pytest.fixture(params=["store", pytest.param("sqs", marks=pytest.mark.sqs)])
def queue(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def campaign(tmp_path: Path, queue: str) -> Iterator[Campaign]:
    points, journal = tmp_path / "failpoints", tmp_path / "journal"
    points.mkdir()
    journal.mkdir()
    stack = QuickStack(
        tmp_path,
        queue,
        str(tmp_path / "data"),
        APP,
        APP,  # a second host: while one starts again, the other goes on
        **failpoint_engine.environment_of(points),
        DULY_TEST_JOURNAL=str(journal),
        DULY_EXECUTOR_CALLBACK_ENVIRONMENT="DULY_TEST_JOURNAL",
        **QUICK,
    )
    try:
        yield Campaign(stack, Failpoints(points), journal, POINTS[queue], has_queue=queue == "sqs")
    finally:
        stack.stop()


def test_no_task_is_lost_or_runs_twice_at_a_time_whatever_happens_at_any_failpoint(
    campaign: Campaign, queue: str
) -> None:
    asyncio.run(campaign.run())

    problems = {case.name: case.problems for case in campaign.cases if case.problems}
    assert problems == {}
    assert sorted((case.point.name, case.action) for case in campaign.cases) == sorted(
        (name, action) for name in POINTS[queue] for action in FAILPOINTS[name].actions
    )
