"""Controllers and Executors go by the live settings that the Frontend answers to a host's reports."""

import asyncio
from datetime import timedelta

import grpc
import pytest
import structlog
from google.protobuf.duration_pb2 import Duration

from duly_controller.executor_registry import ExecutorRegistry
from duly_controller.host_reporter import HostReporter
from duly_controller.host_settings import HostSettings
from duly_controller.settings import ControllerSettings
from duly_core.live_settings.log_level_follower import LogLevelFollower
from duly_core.process.clock import seconds_since_boot
from duly_core.process.log_levels import log_levels
from duly_core.process.telemetry import TelemetrySettings
from duly_executor.settings import ExecutorSettings
from duly_executor.settings_follower import SettingsFollower
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import controller_pb2, fleet_pb2

SHORT = timedelta(milliseconds=10)
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def levels():
    """Give the process its level back."""
    before = log_levels._default, dict(log_levels._levels)
    yield log_levels
    log_levels._default, log_levels._levels = before


def logs(service, method):
    try:
        return bool(log_levels.drop_below(None, method, {"event": "e", "service": service}))
    except structlog.DropEvent:
        return False


def of_the_controller(**own):
    return HostSettings(LogLevelFollower("worker", ControllerSettings(**own), TelemetrySettings()))


class Controller:
    """Answers what it holds, or fails."""

    def __init__(self, settings):
        self.settings = settings
        self.error = None

    async def GetHostSettings(self, _request, timeout):  # noqa: N802 (the wire's name)
        if self.error:
            raise self.error
        return controller_pb2.GetHostSettingsResponse(settings=self.settings)


def follower(controller, **own):
    return SettingsFollower(
        controller, LogLevelFollower("executor", ExecutorSettings(**own), TelemetrySettings())
    )


class Fleet:
    """Answers reports with these settings."""

    def __init__(self, settings):
        self.settings = settings
        self.reports = []
        self.reported_twice = asyncio.Event()

    async def ReportHost(self, request, timeout):  # noqa: N802 (the wire's name)
        self.reports.append(request)
        if len(self.reports) == 2:
            self.reported_twice.set()
        return fleet_pb2.ReportHostResponse(settings=self.settings)


async def test_a_controller_takes_the_settings_of_each_answer_that_has_them():
    taken = []
    came = asyncio.Event()

    def take(settings, _asked_at):
        taken.append(dict(settings.values))
        came.set()
        return False

    fleet = Fleet(None)
    reporter = HostReporter(
        "host", fleet, ExecutorRegistry(lambda _: None), "store", SHORT, SHORT * 100, take
    )
    await reporter._report(draining=False)
    assert taken == []
    fleet.settings = fleet_pb2.HostSettings(values={"executor.log_level": "debug"})
    finish = reporter.begin(asyncio.Event())
    async with asyncio.timeout(30):
        await came.wait()
    await finish()

    assert taken[0] == {"executor.log_level": "debug"}


def test_what_no_frontend_has_answered_is_unknown_and_not_empty():
    settings = of_the_controller()

    assert settings.to_wire() is None
    settings.take(fleet_pb2.HostSettings(), 0.0)
    assert settings.to_wire() == fleet_pb2.HostSettings()


def test_a_controller_changes_its_log_level_and_takes_its_own_again_after_a_reset():
    settings = of_the_controller(log_level="warning")
    assert not logs("worker", "info")

    settings.take(fleet_pb2.HostSettings(values={"controller.log_level": "debug"}), 0.0)
    assert logs("worker", "debug")

    settings.take(fleet_pb2.HostSettings(), 0.0)
    assert not logs("worker", "info")
    assert logs("worker", "warning")


async def test_a_host_reports_at_once_that_it_has_a_change():
    settings, fleet = (
        of_the_controller(),
        Fleet(fleet_pb2.HostSettings(values={"executor.log_level": "debug"}, age=Duration())),
    )
    reporter = HostReporter(
        "host", fleet, ExecutorRegistry(lambda _: None), "store", HOUR, HOUR, settings.take, settings.age.now
    )

    finish = reporter.begin(asyncio.Event())
    async with asyncio.timeout(30):
        await fleet.reported_twice.wait()
    await finish()

    assert not fleet.reports[0].HasField("settings_age")
    assert fleet.reports[1].HasField("settings_age")


def test_a_controller_knows_how_old_its_copy_is_and_counts_from_when_it_asked():
    settings = of_the_controller()
    assert settings.age.now() is None

    settings.take(fleet_pb2.HostSettings(age=to_duration(timedelta(seconds=3))), seconds_since_boot() - 5)

    assert timedelta(seconds=8) <= settings.age.now() < timedelta(seconds=30)


async def test_an_executor_follows_the_level_of_all_and_its_own_takes_precedence():
    controller = Controller(fleet_pb2.HostSettings(values={"telemetry.log_level": "error"}))
    following = follower(controller)

    await following.run_once()
    assert not logs("executor", "warning")

    controller.settings.values["executor.log_level"] = "debug"
    await following.run_once()
    assert logs("executor", "debug")


@pytest.mark.parametrize("answer", ["an error", "no settings"])
async def test_an_executor_keeps_its_level_while_nothing_is_known(answer):
    controller = Controller(fleet_pb2.HostSettings(values={"executor.log_level": "debug"}))
    following = follower(controller)
    await following.run_once()

    controller.settings = None
    if answer == "an error":
        status = grpc.StatusCode.UNAVAILABLE
        controller.error = grpc.aio.AioRpcError(status, grpc.aio.Metadata(), grpc.aio.Metadata())
    pause = await following.run_once()

    assert logs("executor", "debug")
    assert timedelta() < pause <= timedelta(seconds=10)


async def test_an_executor_passes_over_a_level_of_another_release():
    following = follower(Controller(fleet_pb2.HostSettings(values={"executor.log_level": "loud"})))

    await following.run_once()

    assert logs("executor", "info")
    assert not logs("executor", "debug")
