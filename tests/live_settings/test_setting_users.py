"""Operators see which processes and hosts have read a change of the live settings."""

from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from duly_core.fleet.services import list_services, reporting
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import fleet_pb2_grpc
from tests.fixtures.service_processes import poll
from tests.fleet.test_fleet_hosts import a_report

POLL = "store_consumer.poll_interval"
HOUR = timedelta(hours=1)


@pytest.fixture
async def reports(store):
    """Lets a process report itself, whose copy of the settings is so old."""
    async with AsyncExitStack() as running:
        number = 0

        async def report(service, age):
            nonlocal number
            number += 1
            await running.enter_async_context(reporting(store, service, "", lambda: age))

            async def all_listed():
                return len(await list_services(store)) == number

            await poll(all_listed)

        yield report


async def setting(client, name):
    return next(each for each in await client.settings() if each.name == name)


async def test_who_has_read_a_change_is_counted_and_who_has_not_is_named(client, reports):
    await client.set_setting(POLL, "3s")
    await reports("hsc", timedelta())
    await reports("store-consumer", HOUR)
    await reports("hsc", None)
    await reports("frontend", HOUR)  # does not use it

    shown = await setting(client, POLL)

    assert (shown.users, shown.users_with_it) == (3, 1)
    assert [name.split()[0] for name in shown.users_without_it] == ["hsc", "store-consumer"]


async def test_hosts_count_for_the_settings_of_workers(client, frontend):
    fleet = fleet_pb2_grpc.FleetServiceStub(frontend.channel)
    await client.set_setting("executor.log_level", "debug")
    await fleet.ReportHost(a_report("with-it", settings_age=to_duration(timedelta())))
    await fleet.ReportHost(a_report("without", settings_age=to_duration(HOUR)))
    await fleet.ReportHost(a_report("unknown"))
    await fleet.ReportHost(a_report("stopped", stopped=True))

    shown = await setting(client, "executor.log_level")

    assert (shown.users, shown.users_with_it) == (3, 1)
    assert shown.users_without_it == ("host unknown", "host without")


async def test_what_nobody_has_set_is_not_counted(client, reports):
    await reports("hsc", timedelta())

    assert (await setting(client, POLL)).users == 0


async def test_a_process_that_fell_silent_is_not_counted(client, reports, clock):
    await client.set_setting(POLL, "3s")
    await reports("hsc", HOUR)
    await clock.tick(HOUR)

    assert (await setting(client, POLL)).users == 0


async def test_the_command_names_those_that_have_not_read_it(client, reports, run_duly):
    await client.set_setting(POLL, "3s")
    await reports("hsc", timedelta())
    await reports("store-consumer", HOUR)

    shown = await run_duly("settings")

    assert "1 of 2 have it" in " ".join(shown.stdout.split())
    assert f"{POLL}: 1 of 2 processes and hosts have it" in shown.stderr
    assert "store-consumer" in shown.stderr


async def test_the_command_says_nothing_once_all_have_read_it(client, reports, run_duly):
    await client.set_setting(POLL, "3s")
    await reports("hsc", timedelta())

    shown = await run_duly("settings")

    assert "1 of 1 have it" in " ".join(shown.stdout.split())
    assert POLL not in shown.stderr
