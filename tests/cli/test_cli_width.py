"""Whatever a command lists fits a terminal of 80 columns, with long names too; a longer word stands alone."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from typer.main import get_command

import duly
from duly_cli.__main__ import app
from duly_core.fleet.services import reporting
from duly_wire.enums import Priority, Role
from duly_wire.v1 import fleet_pb2_grpc
from tests.fixtures.service_processes import poll
from tests.fleet.test_fleet_hosts import a_report
from tests.fleet.test_fleet_services import is_listed

WIDTH = 80
LONG = "a-namespace-with-a-long-name/department.invoices.yearly.statement.send-by-mail"
SESSION = "customer-of-the-northern-region-with-a-long-name-0123456789"
_ELSEWHERE = {
    "cells list",
    "config",
    "conformance",
    "db operator",
    "gates set",
    "migrate",
    "settings reset",
    "settings set",
    "schedule",
    "up",
    "demo",
    "run",
    "register",
    "example",
    "events watch",
}
"""They list nothing of a Frontend, need an argument, or do not end."""


def listings(command=None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Each command that writes lines or JSON and needs no argument."""
    command = command or get_command(app)
    for name, child in getattr(command, "commands", {}).items():
        yield from listings(child, (*path, name))
    parameters = command.params
    names = {
        each.name for each in parameters
    }  # a task may be named by its lambda and key: one of both is needed
    has_json = any("--json" in each.opts for each in parameters if not each.hidden) if path else False
    needs = any(each.required for each in parameters) or {"lambda_name", "key"} <= names
    if has_json and not needs and " ".join(path) not in _ELSEWHERE:
        yield path


LISTINGS = sorted(set(listings()))


@pytest.fixture
async def filled(frontend, client, store, task_states, run_duly):
    """A thing of each kind, with a long name."""
    await task_states.register(LONG)
    fleet = fleet_pb2_grpc.FleetServiceStub(frontend.channel)
    host = f"{'a-machine-with-a-long-name.' * 2}example.org:1234567:abcdef01"
    await fleet.ReportHost(a_report(host, lambdas=(LONG,)))
    await task_states.processing(lambda_name=LONG, priority=Priority.URGENT)
    for _ in range(2):
        await client.schedule(LONG, session=duly.Session(SESSION), collection="c" * 60)
    await client.put_resource(
        "a-resource-with-a-long-name.of-a-database", 0, note="as its provider wants it to be"
    )
    await client.create_table("a-time-table-with-a-long-name.daily", LONG, every=timedelta(hours=1))
    await client.add_grants([duly.Grant("principal.with-a-long-name@example.org", Role.CLIENT, LONG)])
    await client.create_token("principal.with-a-long-name@example.org", note="a note that is long " * 3)
    async with client.graph(LONG.replace("/", ".")) as graph:
        graph.task(LONG, label="a-label-that-is-long")
    async with reporting(store, "hsc", f"{'a-host-with-a-long-name.' * 2}example.org:7402"):
        await poll(lambda: is_listed(store))


def test_the_listings_are_found():
    found = {" ".join(each) for each in LISTINGS}

    assert {
        "list",
        "hosts list",
        "queues list",
        "services list",
        "top",
        "backlog list",
        "lambdas list",
        "tokens list",
        "audit list",
    } <= found


async def test_every_listing_fits_eighty_columns(filled, run_duly, monkeypatch):
    for module in ("output.table", "fleet.top"):
        monkeypatch.setattr(f"duly_cli.{module}.terminal_width", lambda: WIDTH)

    problems = {}
    for path in LISTINGS:
        once = ("--once", "--interval", "200ms") if path == ("top",) else ()
        done = await run_duly(*path, *once)
        says_health = path == ("status",)  # by its exit code
        assert done.exit_code == 0 or says_health, (path, done.stderr)
        wide = [line for line in done.stdout.splitlines() if len(line) > WIDTH and len(line.split()) > 1]
        if wide:
            problems[" ".join(path)] = wide

    assert problems == {}


async def test_a_host_in_detail_fits_eighty_columns(filled, client, run_duly, monkeypatch):
    monkeypatch.setattr("duly_cli.output.table.terminal_width", lambda: WIDTH)
    (host,) = [each async for each in client.hosts()]

    lines = (await run_duly("hosts", host.host_id)).stdout.splitlines()

    assert LONG in "\n".join(lines)
    assert [line for line in lines if len(line) > WIDTH and len(line.split()) > 2] == []
