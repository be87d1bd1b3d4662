"""`duly tables` and the blocking client, against a Frontend that serves."""

import asyncio
import json
from datetime import timedelta

import pytest

import duly
from tests.fixtures.task_states import LAMBDA
from tests.fixtures.time_tables import NAME

pytestmark = pytest.mark.usefixtures("tables")


async def test_a_time_table_is_created_and_shown_with_its_next_ticks(run_duly):
    made = await run_duly(
        "tables", "create", NAME, LAMBDA, '{"to": "ann"}', "--cron", "30 2 * * *", "--zone", "Asia/Tokyo",
        "--overlap", "buffer-one", "--jitter", "5m",
    )  # fmt: skip

    shown = await run_duly("tables", "show", NAME, "--next", "4")

    assert made.exit_code == 0, made.stderr
    assert ["overlap", "buffer-one"] in [line.split() for line in shown.stdout.splitlines()]
    ticks = [line for line in shown.stdout.splitlines() if line.endswith("02:30:00 JST")]
    assert len(ticks) == 4
    assert "17:30:00Z" in ticks[0]


async def test_time_tables_are_listed_a_line_each(run_duly):
    await run_duly("tables", "create", NAME, LAMBDA, "--every", "1h")
    await run_duly("tables", "pause", NAME, "--note", "moving house")

    heads, line = (await run_duly("tables")).stdout.splitlines()
    (as_json,) = map(json.loads, (await run_duly("tables", "--json")).stdout.splitlines())

    assert heads.split() == ["NAME", "LAMBDA", "FIRES", "NEXT", "LAST", "TICK", "STATUS"]
    assert line.startswith(f"{NAME}  {LAMBDA}  every 1:00:00")
    assert line.endswith("paused: moving house")
    assert (as_json["name"], as_json["every_seconds"], as_json["pause_note"]) == (NAME, 3600, "moving house")


async def test_a_time_table_is_changed_resumed_and_deleted(run_duly):
    await run_duly("tables", "create", NAME, LAMBDA, "--every", "1h")
    await run_duly("tables", "pause", NAME)

    changed = await run_duly("tables", "change", NAME, '"new"', "--cron", "@daily", "--catch-up", "all")
    resumed = await run_duly("tables", "resume", NAME)
    deleted = await run_duly("tables", "delete", NAME)
    gone = await run_duly("tables", "show", NAME)

    assert "@daily UTC" in changed.stdout
    assert "'new'" in changed.stdout
    assert "active" in resumed.stdout
    assert (deleted.exit_code, gone.exit_code) == (0, 1)
    assert f"there is no time table '{NAME}'" in gone.stderr


async def test_a_past_range_is_counted_and_then_scheduled(run_duly):
    await run_duly("tables", "create", NAME, LAMBDA, "--cron", "@daily")
    span = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-02-01T00:00:00Z")

    counted = await run_duly("tables", "backfill", NAME, *span, "--dry-run")
    done = await run_duly("tables", "backfill", NAME, *span)

    assert counted.stdout.splitlines()[-1] == "31 ticks"
    assert done.stdout.splitlines()[-1] == "31 ticks, 31 tasks scheduled"


async def test_a_command_line_that_says_too_little_or_wrong_is_refused(run_duly):
    for arguments, said in [
        (("change", NAME), "say what to change"),
        (("create", NAME, LAMBDA, "--every", "1h", "--overlap", "some"), "buffer-one"),
        (("--lambda", LAMBDA, "show", NAME), "after `show`"),
        (("backfill", NAME, "--from", "2026-01-01"), "no time zone"),
    ]:
        refused = await run_duly("tables", *arguments)

        assert refused.exit_code == 2
        assert said in " ".join(refused.stderr.replace("│", " ").split())


async def test_what_the_frontend_refuses_is_one_line(run_duly):
    refused = await run_duly("tables", "create", NAME, LAMBDA, "--cron", "0 0 30 2 *")

    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert "never fires" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--cron", "@daily", "--on-closed", "next"),
            "--on-closed: belongs to a calendar: name one, or leave it out",
        ),
        (
            ("--cron", "@daily", "--business-hours"),
            "--business-hours: belongs to a calendar: name one, or leave it out",
        ),
        (
            ("--every", "10m", "--calendar", "office", "--on-closed", "next"),
            (
                "--on-closed: an interval below a day has ticks on the next working day anyway: use skip, or --business-hours, "
                "which moves to the next opening"
            ),
        ),
        (
            ("--every", "10m", "--zone", "Europe/Berlin"),
            (
                "--zone: belongs to a cron expression or a calendar, and an interval is the same in every zone: leave it out, or "
                "remove it with --no-zone"
            ),
        ),
    ],
)
async def test_what_the_frontend_refuses_is_said_of_the_option(run_duly, arguments, said):
    refused = await run_duly("tables", "create", NAME, LAMBDA, *arguments)

    assert (refused.exit_code, refused.stderr) == (1, f"duly: {said}\n")


async def test_the_blocking_client_does_all_that_the_other_does(frontend):
    def use():
        with duly.Client(frontend.address) as client:
            client.create_table(NAME, LAMBDA, every=timedelta(hours=1))
            client.change_table(NAME, jitter=timedelta(minutes=1))
            client.pause_table(NAME)
            client.resume_table(NAME)
            read_at = client.table(NAME).updated_at
            filled = client.backfill_table(NAME, read_at - timedelta(hours=2), read_at, dry_run=True)
            return client.tables(lambda_name=LAMBDA), filled.ticks, client.delete_table(NAME).revision

    (listed,), ticks, revision = await asyncio.to_thread(use)

    assert (listed.name, listed.jitter, ticks, revision) == (NAME, timedelta(minutes=1), 2, 2)


async def test_calendars_are_set_checked_and_named_from_the_shell(run_duly, task_states):
    await task_states.register()

    made = await run_duly(
        "calendars",
        "set",
        "office",
        "--holidays",
        "DE-BY",
        "--closed",
        "2026-12-24",
        "--hours",
        "mon-fri 09:00-17:00",
    )
    checked = await run_duly("calendars", "check", "office", "2026-12-24", "2026-12-28")
    wrong = await run_duly("calendars", "check", "office", "tomorrow")
    table = ("tables", "create", "nightly", LAMBDA, "--cron", "0 8 25 * *", "--calendar", "office")
    created = await run_duly(*table, "--on-closed", "previous")
    preview = await run_duly("tables", "preview", "nightly", "--next", "1", "--from", "2026-12-01T00:00:00Z")
    as_json = await run_duly(
        "tables", "preview", "nightly", "--next", "1", "--from", "2026-12-01T00:00:00Z", "--json"
    )
    deleted = await run_duly("calendars", "delete", "office")
    listed = await run_duly("calendars", "list", "--json")

    assert "changed: holidays, weekend, closed, hours" in made.stdout
    assert checked.stdout.splitlines()[1].split()[:3] == ["Thu", "2026-12-24", "closed"]
    assert "09:00-17:00" in checked.stdout.splitlines()[2]
    assert "write it as 2026-12-24" in wrong.stderr
    assert "ticks move to the previous working time" in created.stdout
    assert preview.stdout.splitlines()[1].split() == [
        *("Fri", "2026-12-25", "08:00:00", "UTC", "Wed", "2026-12-23", "08:00:00", "UTC"),
        *("holiday:", "Christmas", "Day", "(DE-BY)"),
    ]
    assert json.loads(as_json.stdout)["reason"] == "holiday: Christmas Day (DE-BY)"
    assert (deleted.exit_code, "nightly" in deleted.stderr) == (1, True)
    assert json.loads(listed.stdout)["closed"] == ["2026-12-24"]
