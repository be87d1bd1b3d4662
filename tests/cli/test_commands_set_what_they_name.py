"""Each option of a command that changes a thing reaches the wire as the field that it names, and `--no-...` removes it."""

from dataclasses import dataclass, field

import click
import pytest
from typer.main import get_command

import duly
from duly_cli.__main__ import app
from duly_core.limits.changes import RESOURCE_FIELDS
from duly_core.pools.rules import POOL_FIELDS
from duly_frontend.gates.breakers import BREAKER_FIELDS
from duly_frontend.gates.checks import GATE_FIELDS
from duly_frontend.slo.service import OBJECTIVE_FIELDS
from duly_frontend.time_tables.calendars import CALENDAR_FIELDS
from duly_frontend.time_tables.definitions import TABLE_FIELDS
from duly_frontend.time_tables.service import PAUSE_FIELDS
from tests.fixtures.task_states import LAMBDA

OTHER = "report.make"


@dataclass(frozen=True)
class Command:
    """A command that changes a thing, and what each of its options names."""

    words: tuple[str, ...]
    fields: tuple[str, ...]
    """That the wire can set."""
    options: dict[tuple[str, ...], set[str]]
    """What is typed, and the fields that the request names."""
    without_no: dict[str, str]
    """Fields that no `--no-...` removes, and why."""
    start: tuple[str, ...] = ()
    """Makes the thing, where the command looks for it first."""
    unchanging: frozenset[str] = field(default_factory=frozenset)
    """Options that change nothing of the thing."""


COMMON = {"address", "as_json", "dry_run", "raw"}
RESOURCE = Command(
    words=("resources", "set", "database"),
    fields=RESOURCE_FIELDS,
    options={
        ("30",): {"capacity"},
        ("--no-capacity",): {"capacity"},
        ("--rate", "6/m"): {"rate.units", "rate.period"},
        ("--no-rate",): {"rate"},
        ("--burst", "11"): {"rate.burst"},
        ("--no-burst",): {"rate.burst"},
        ("--no-per-key",): {"per_key"},
        ("--per-key",): {"per_key"},
        ("--note", "40 connections"): {"note"},
        ("--no-note",): {"note"},
    },
    without_no={},
    unchanging=frozenset({"name", "expected_changed_at"}),
)
GATE = Command(
    words=("gates", "set", "--name", "night"),
    fields=GATE_FIELDS,
    options={
        ("--lambda", OTHER): {"scope.lambda"},
        ("--namespace", "shop"): {"scope.lambda"},
        ("--collection", "sales"): {"scope.collection"},
        ("--no-collection",): {"scope.collection"},
        ("--priority", "high"): {"scope.priority"},
        ("--no-priority",): {"scope.priority"},
        ("--session", "vlan-8"): {"scope.session"},
        ("--no-session",): {"scope.session"},
        ("--pause",): {"kind", "delay"},
        ("--drop",): {"kind", "delay"},
        ("--delay", "2m"): {"kind", "delay"},
        ("--until", "3h"): {"expires_at"},
        ("--until", "2096-12-24T18:00:00+01:00"): {"expires_at"},
        ("--no-until",): {"expires_at"},
        ("--reason", "the provider is back"): {"reason"},
        ("--no-reason",): {"reason"},
    },
    without_no={
        "kind": "a gate does something: another option says what",
        "scope.lambda": "a gate hits something: --lambda '*' is all",
        "delay": "--pause and --drop remove it",
    },
    unchanging=frozenset({"name"}),
)
BREAKER = Command(
    words=("breakers", "set", LAMBDA),
    fields=BREAKER_FIELDS,
    options={
        ("--failure-rate", "0.5"): {"failure_rate"},
        ("--minimum", "6"): {"minimum"},
        ("--window", "3m"): {"window"},
        ("--pause", "60s"): {"pause"},
        ("--probes", "8"): {"probes"},
        ("--reason", "page somebody"): {"reason"},
        ("--no-reason",): {"reason"},
    },
    without_no=dict.fromkeys(
        ("failure_rate", "minimum", "window", "pause", "probes"), "a breaker has one: the help says the first"
    ),
    unchanging=frozenset({"lambda_name", "remove"}),
)
OBJECTIVE = Command(
    words=("slo", "set", LAMBDA),
    fields=OBJECTIVE_FIELDS,
    options={("--share", "99.9"): {"share"}, ("--within", "1s"): {"start_within"}},
    without_no=dict.fromkeys(OBJECTIVE_FIELDS, "an objective has both: `slo reset` removes it"),
    unchanging=frozenset({"lambda_name"}),
)
TABLE = Command(
    words=("tables", "set", "nightly"),
    start=("tables", "create", "nightly", LAMBDA, "--every", "1h"),
    fields=TABLE_FIELDS,
    options={
        ('"stock"',): {"payload"},
        ("--lambda", OTHER): {"lambda"},
        ("--cron", "0 3 * * *"): {"cron", "offset"},
        ("--every", "1h"): {"every", "zone"},
        ("--every", "1h", "--offset", "1m"): {"every", "zone", "offset"},
        ("--no-offset",): {"offset"},
        ("--zone", "Europe/Paris"): {"zone"},
        ("--no-zone",): {"zone"},
        ("--catch-up", "one"): {"catch_up", "catch_up_window"},
        ("--catch-up-window", "1h"): {"catch_up_window"},
        ("--no-catch-up-window",): {"catch_up_window"},
        ("--overlap", "allow"): {"overlap"},
        ("--jitter", "40s"): {"jitter"},
        ("--no-jitter",): {"jitter"},
        ("--priority", "normal"): {"priority"},
        ("--collection", "sums"): {"collection"},
        ("--no-collection",): {"collection"},
        ("--resource", "database"): {"resources"},
        ("--no-resources",): {"resources"},
        ("--session", "k"): {"session"},
        ("--session", "k", "--session-order", "due", "--session-on-failure", "block"): {"session"},
        ("--no-session",): {"session"},
        ("--fair-key", "bob"): {"fair_key"},
        ("--no-fair-key",): {"fair_key"},
        ("--attribute", "region=eu", "--attribute", "order=17"): {"attributes"},
        ("--no-attributes",): {"attributes"},
        ("--calendar", "office"): {"calendar"},
        ("--no-calendar",): {"calendar", "on_closed", "business_hours", "working_day"},
        ("--on-closed", "next"): {"on_closed"},
        ("--business-hours",): {"business_hours"},
        ("--no-business-hours",): {"business_hours"},
        ("--working-day", "-1"): {"working_day"},
    },
    without_no={
        "lambda": "its tasks run something",
        "cron": "--every removes it",
        "every": "--cron removes it",
        "payload": "a payload of null says the same",
        "payload_encoding": "that of the payload",
        "priority": "--priority normal says the same",
        "catch_up": "--catch-up one says the same",
        "overlap": "--overlap allow says the same",
    },
    unchanging=frozenset({"name"}),
)
PAUSE = Command(
    words=("tables", "pause", "nightly"),
    start=("tables", "create", "nightly", LAMBDA, "--every", "1h"),
    fields=PAUSE_FIELDS,
    options={("--note", "the warehouse moves"): {"note"}, ("--no-note",): {"note"}},
    without_no={},
    unchanging=frozenset({"name"}),
)
CALENDAR = Command(
    words=("calendars", "set", "office"),
    fields=CALENDAR_FIELDS,
    options={
        ("--holidays", "DE"): {"holidays"},
        ("--no-holidays",): {"holidays"},
        ("--weekend", "sat"): {"weekend"},
        ("--no-weekend",): {"weekend"},
        ("--closed", "2026-12-24"): {"closed"},
        ("--no-closed",): {"closed"},
        ("--open", "2026-12-19"): {"open"},
        ("--no-open",): {"open"},
        ("--hours", "MON-FRI 09:00-17:00"): {"hours"},
        ("--no-hours",): {"hours"},
        ("--note", "Munich"): {"note"},
        ("--no-note",): {"note"},
    },
    without_no={},
    unchanging=frozenset({"name", "if_revision"}),
)
POOL = Command(
    words=("pools", "set", "mail"),
    fields=POOL_FIELDS,
    options={
        ("--lambda", OTHER): {"lambdas"},
        ("--max", "30"): {"maximum"},
        ("--min", "3"): {"minimum"},
        ("--driver", "local"): {"driver"},
        ("--driver-setting", "deployment=post"): {"driver_settings"},
        ("--no-driver-settings",): {"driver_settings"},
        ("--slots", "16"): {"slots"},
        ("--label", "gpu"): {"labels"},
        ("--no-labels",): {"labels"},
        ("--target-age", "20s"): {"target_age"},
        ("--idle-time", "4m"): {"idle_time"},
        ("--budget", "24h"): {"budget"},
        ("--no-budget",): {"budget"},
        ("--note", "the post team"): {"note"},
        ("--no-note",): {"note"},
    },
    without_no={
        "lambdas": "its workers run something",
        "maximum": "a pool has one",
        "driver": "something starts its workers",
        "minimum": "--min 0 says the same",
        "slots": "--slots 1 says the same",
        "target_age": "--target-age 30s says the same",
        "idle_time": "--idle-time 1m says the same",
    },
    unchanging=frozenset({"name", "expected_changed_at"}),
)
COMMANDS = (RESOURCE, GATE, BREAKER, OBJECTIVE, TABLE, CALENDAR, PAUSE, POOL)
REQUESTS = {
    "PutResourceRequest",
    "PutGateRequest",
    "PutBreakerRequest",
    "PutObjectiveRequest",
    "PutTimeTablesRequest",
    "PauseTimeTablesRequest",
    "PutPoolsRequest",
    "PutCalendarsRequest",
}


def name_of(command):
    return " ".join(command.words[:2])


def parameters(command):
    found = get_command(app)
    for word in command.words[:2]:
        found = found.commands[word]
    return {each.name: each for each in found.params}


@pytest.fixture
def sent(run_duly, monkeypatch):
    """Runs a command; the mask that it would have sent: no change reaches the Frontend."""
    requests = []
    original = duly.transport.caller.Caller.call

    async def call(self, method, request, *arguments, **options):
        if request.DESCRIPTOR.name not in REQUESTS:
            return await original(self, method, request, *arguments, **options)
        requests.append(request)
        raise duly.DulyError("kept by the test")

    async def run(*words):
        requests.clear()
        with monkeypatch.context() as patch:
            patch.setattr(duly.transport.caller.Caller, "call", call)
            done = await run_duly(*words)
        assert "kept by the test" in done.stderr, done.output
        (request,) = requests
        if request.DESCRIPTOR.name == "PutResourceRequest":
            (mask,) = request.update_masks.values()
        elif request.DESCRIPTOR.name == "PutPoolsRequest":
            mask = request.pools[0].update_mask
        elif request.DESCRIPTOR.name == "PutTimeTablesRequest":
            mask = request.tables[0].update_mask
        elif request.DESCRIPTOR.name == "PutCalendarsRequest":
            mask = request.calendars[0].update_mask
        else:
            mask = request.update_mask
        return {*mask.paths}

    return run


@pytest.mark.parametrize("command", COMMANDS, ids=name_of)
async def test_an_option_names_its_fields_and_no_others(sent, run_duly, task_states, command):
    await task_states.register()
    if command.start:
        await run_duly(*command.start)

    named = {typed: await sent(*command.words, *typed) for typed in command.options}

    assert named == command.options


@pytest.mark.parametrize("command", COMMANDS, ids=name_of)
def test_every_option_of_a_command_is_in_the_table(command):
    typed = {word for words in command.options for word in words}
    options = {
        name: each for name, each in parameters(command).items() if name not in COMMON | command.unchanging
    }

    missing = [
        name for name, each in options.items() if isinstance(each, click.Option) and not typed & {*each.opts}
    ]

    assert missing == []


@pytest.mark.parametrize("command", COMMANDS, ids=name_of)
def test_every_field_can_be_set_and_removed_from_the_shell(command):
    named = set.union(*command.options.values())
    wholes = {
        "rate": {"rate.units", "rate.period", "rate.burst"},
        "session": {"session.key", "session.order", "session.on_failure"},
    }
    named |= {each for field in wholes.keys() & named for each in wholes[field]}
    removed = set.union(
        set(), *(names for typed, names in command.options.items() if typed[0].startswith("--no-"))
    )
    removed |= {each for field in wholes.keys() & removed for each in wholes[field]}

    assert named | {"payload_encoding"} >= {*command.fields}
    assert {*command.fields} - removed == command.without_no.keys()


async def test_a_value_and_its_removal_together_are_refused_before_anything_is_sent(run_duly):
    for words, option in [
        (("resources", "set", "database", "20", "--no-capacity"), "--no-capacity"),
        (("resources", "set", "database", "--rate", "5/s", "--no-rate"), "--no-rate"),
        (("resources", "set", "database", "--burst", "5", "--no-burst"), "--no-burst"),
        (("resources", "set", "database", "--burst", "5", "--no-rate"), "--no-rate"),
        (("resources", "set", "database", "--note", "x", "--no-note"), "--no-note"),
        (("resources", "set", "database"), "say what to change"),
        (("gates", "set", "--name", "night", "--collection", "a", "--no-collection"), "--no-collection"),
        (("gates", "set", "--name", "night", "--priority", "low", "--no-priority"), "--no-priority"),
        (("gates", "set", "--name", "night", "--session", "a", "--no-session"), "--no-session"),
        (("gates", "set", "--name", "night", "--until", "2h", "--no-until"), "--no-until"),
        (("gates", "set", "--name", "night", "--reason", "x", "--no-reason"), "--no-reason"),
        (("gates", "set", "--name", "night", "--pause", "--drop"), "say one of --pause"),
        (("gates", "set", "--lambda", LAMBDA), "say one of --pause"),
        (("gates", "set", "night", "--name", "night", "--pause"), "--name"),
        (("gates", "set", "--pause"), "NAME of a gate to change"),
        (("gates", "set", "--lambda", LAMBDA, "--namespace", "shop", "--pause"), "--namespace"),
        (("gates", "set", "--lambda", LAMBDA, "--pause", "--until", "soon"), "--until"),
        (("breakers", "set", LAMBDA, "--reason", "x", "--no-reason"), "--no-reason"),
        (("gates", "breaker", LAMBDA, "--remove", "--reason", "x"), "--remove"),
        (("breakers", "set", LAMBDA), "say what to change"),
        (("tables", "set", "nightly", "--zone", "Europe/Berlin", "--no-zone"), "--no-zone"),
        (("tables", "set", "nightly", "--jitter", "1s", "--no-jitter"), "--no-jitter"),
        (("tables", "pause", "nightly", "--note", "x", "--no-note"), "--no-note"),
    ]:
        done = await run_duly(*words)

        assert done.exit_code == 2
        assert option in " ".join(done.stderr.replace("│", " ").split())


async def test_the_shell_says_what_changed_and_what_stayed(run_duly, task_states):
    await task_states.register()
    await run_duly(
        "resources", "set", "database", "10", "--rate", "5/s", "--burst", "10", "--note", "20 connections"
    )

    changed = await run_duly("resources", "set", "database", "20")
    same = await run_duly("resources", "set", "database", "20")
    no_rate = await run_duly("resources", "set", "database", "--no-rate")

    stays = "unchanged: rate 5/s, burst 10, note '20 connections'"
    assert changed.stdout.endswith(f"database: 20 units; {stays}\n")
    assert same.stdout.endswith("database: unchanged: 20 units, rate 5/s, burst 10, note '20 connections'\n")
    assert no_rate.stdout.endswith(
        "database: no rate, no burst; unchanged: 20 units, note '20 connections'\n"
    )


async def test_a_change_that_contradicts_what_stays_says_the_fix(run_duly, task_states):
    await task_states.register()
    await run_duly("resources", "set", "database", "10")
    await run_duly("resources", "set", "mail", "--rate", "5/s")

    burst = await run_duly("resources", "set", "database", "--burst", "5")
    limitless = await run_duly("resources", "set", "mail", "--no-rate")

    assert (burst.exit_code, limitless.exit_code) == (1, 1)
    assert "database has no rate" in burst.stderr
    assert "say how many units there are, or give a rate" in limitless.stderr


async def test_the_sdk_keeps_what_is_not_given_and_removes_what_is_none(client, task_states):
    await task_states.register()
    await client.put_resource("mail", 3, rate=duly.Rate(5, burst=10), note="its provider")
    await client.create_table("nightly", LAMBDA, {"of": "sales"}, cron="@daily", collection="reports")

    changed = await client.put_resource("mail", rate=duly.Rate(6))
    removed = await client.put_resource("mail", note=None, rate=None)
    table = await client.change_table("nightly", collection=None, zone="Europe/Berlin")

    assert (changed.rate, changed.capacity, changed.note) == (duly.Rate(6, burst=10), 3, "its provider")
    assert changed.changed == ("rate.units",)
    assert (removed.rate, removed.capacity, removed.note) == (None, 3, "")
    assert (table.payload, table.cron, table.collection) == ({"of": "sales"}, "@daily", "")
    assert table.changed == ("collection", "zone")
    for nothing in (
        client.put_resource("mail"),
        client.put_gate("night"),
        client.put_breaker(LAMBDA),
    ):
        with pytest.raises(duly.InvalidTaskError, match="say what to change"):
            await nothing
    with pytest.raises(duly.InvalidTaskError, match="either rate or burst"):
        await client.put_resource("mail", rate=duly.Rate(5, burst=2), burst=3)
