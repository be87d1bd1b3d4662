"""What people type who know kubectl and temporal: reads run, changes are told the command, and nothing destroys unasked."""

import json
import os
import re
from types import SimpleNamespace

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import duly
from duly_cli.__main__ import app
from duly_cli.output import table
from duly_cli.startup import known_names
from duly_cli.startup.guesses import ADVICE, ENDS, OTHER_NOUNS, OTHER_WORDS
from duly_cli.startup.nouns import Noun

ROOT = get_command(app)
DESTRUCTIVE = re.compile(
    r"\b(cancel|delete|purge|kill|terminate|remove|reset|revoke|rollback|redrive|drop|restore)\b"
)
RUNS = {
    "get tasks": "tasks list",
    "get pods": "",
    "get lambdas": "lambdas list",
    "get lambda test.brief": "lambdas show test.brief",
    "list lambdas": "lambdas list",
    "list gates": "gates list",
    "ls": "list",
    "ls hosts": "hosts list",
    "show queues": "queues list",
    "describe lambda test.brief": "lambdas show test.brief",
    "lambda describe test.brief": "lambdas show test.brief",
    "lambda get test.brief": "lambdas show test.brief",
    "task ls": "list",
    "tasks": "list",
    "graph ls": "graphs list",
    "table": "tables list",
    "hosts ls": "hosts list",
    "breakers": "breakers list",
    "calendar list": "calendars list",
    "grant ls": "grants list",
    "dead-letter ls": "dead-letters list",
    "get resources -o json": "resources list --json",
    "services -o wide": "services list",
    "audit": "audit list",
    "setting ls -o name": "settings list -o name",
}
"""Each guess, and the command that it runs; empty: it runs none."""
ANSWERED = {
    "delete gate night": "`duly gates delete night`",
    "rm gate night": "`duly gates delete night`",
    "delete tokens abc": "`duly tokens revoke abc`",
    "set resource database 10": "`duly resources set database 10`",
    "create resource database 10": "`duly resources set database 10`",
    "edit table nightly": "`duly tables set nightly`",
    "create graph f.json": "`duly graphs put f.json`",
    "cancel graph 1234": "`duly graphs cancel 1234`",
    "apply -f roles.toml": "`duly grants apply FILE`",
    "create": "`duly schedule LAMBDA PAYLOAD`",
    "start": "`duly schedule LAMBDA PAYLOAD`",
    "workflow list": "`duly tasks` lists them",
    "workflow terminate 1234": "`duly tasks` lists them",
    "jobs": "`duly tasks` lists them",
    "workers": "`duly hosts` lists them",
    "nodes": "`duly hosts` lists them",
    "cronjob create": "`duly tables` lists them",
    "dlq": "`duly dead-letters` lists them",
    "quotas": "`duly resources` lists them",
    "terminate 1234": "`duly cancel TASK_ID`",
    "kill 1234": "`duly cancel TASK_ID`",
    "task terminate 1234": "`duly task cancel` asks what runs to stop",
    "tasks delete 1234": "its verbs are",
    "delete 1234": "`duly NOUN delete NAME`",
    "retry 1234": "`duly redrive TASK_ID`",
    "signal order-17 true": "`duly events send KEY VALUE`",
    "scale mail 3": "`duly pools set NAME --min N --max N`",
    "rollout status": "`duly lambdas ramp",
    "ps": "`duly list --status processing`",
    "version": "`duly --version`",
    "namespace list": "NAMESPACE/NAME",
    "dashboard": "`duly top`",
    "frobnicate": "`duly --help` lists the commands",
    "pauze mail.send": "'pause'",
}
"""Each guess that runs nothing, and what its answer says."""


def run(*words: str):
    """Run a command that must not get as far as to a Frontend."""
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "400", "DULY_ADDRESS": "nobody.invalid:1"})


def nouns() -> dict[str, Noun]:
    return {name: each for name, each in ROOT.commands.items() if isinstance(each, Noun)}


async def test_a_guess_that_reads_runs_what_is_meant(run_duly, task_states):
    await task_states.register("test.brief")

    for guess, meant in RUNS.items():
        guessed = await run_duly(*guess.split())
        if not meant:
            assert guessed.exit_code != 0, guess
            continue
        expected = await run_duly(*meant.split())
        assert (guessed.exit_code, guessed.stderr) == (0, ""), (guess, guessed.stderr)
        assert [line.split("  ")[0] for line in guessed.stdout.splitlines()] == [
            line.split("  ")[0] for line in expected.stdout.splitlines()
        ], guess


@pytest.mark.parametrize("guess", ANSWERED)
def test_a_guess_that_changes_something_is_told_the_command_and_runs_nothing(guess):
    answered = run(*guess.split())

    assert (answered.exit_code, answered.stdout) == (2, "")
    assert ANSWERED[guess] in " ".join(answered.stderr.replace("│", " ").split())


def test_nothing_that_destroys_is_suggested_to_who_mistypes_any_verb():
    verbs = {*ROOT.commands, *(verb for noun in nouns().values() for verb in noun.commands)}
    typed = {
        *(verb[:-1] for verb in verbs),
        *(f"{verb}x" for verb in verbs),
        *(f"{verb[0]}{verb[2:]}" for verb in verbs if len(verb) > 3),
        *(f"{verb[1]}{verb[0]}{verb[2:]}" for verb in verbs if len(verb) > 3),
        *verbs,
    }
    suggested = 0
    for word in sorted(typed):
        if ROOT.get_command(None, word) is not None or word in ADVICE:
            continue
        said = ROOT._meant([word])
        suggested += "Did you mean" in said
        assert not DESTRUCTIVE.search(said), (word, said)
    assert suggested > 50


def test_an_end_is_named_to_who_asks_for_an_end_alone():
    asked = {*ENDS, "delete", "rm", "remove", "del", "retry", "rerun", "replay", "requeue"}

    named = {word for word, said in ADVICE.items() if DESTRUCTIVE.search(said.partition("--help")[0])}

    assert named <= asked


def test_words_of_other_command_lines_are_no_commands_and_lead_to_commands():
    for noun in OTHER_NOUNS.values():
        assert isinstance(ROOT.commands[noun], Noun)
    for said in ADVICE.values():
        for words in re.findall(r"`duly ([^`]*)`", said):
            first, *rest = words.split()
            assert first in {*ROOT.commands, "NOUN", "--version"}, words
            command = ROOT.commands.get(first)
            if isinstance(command, Noun) and rest and not rest[0].startswith("-"):
                assert rest[0] in command.commands, words
    for word in ADVICE:
        assert word not in ROOT.commands or word == "version", word
    verbs = {verb for noun in nouns().values() for verb in noun.commands}
    assert {verb for known in OTHER_WORDS.values() for verb in known} <= verbs


def test_help_is_shown_by_h_everywhere():
    def walk(command, path=()):
        yield path
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, (*path, name))

    for path in walk(ROOT):
        shown = run(*path, "-h")
        assert shown.exit_code == 0, path
        assert "Usage:" in shown.stdout, path


def test_help_is_a_word_too():
    assert run("help").exit_code == 0
    assert "Usage: duly lambdas ramp" in run("help", "lambdas", "ramp").stdout


async def test_names_are_what_show_takes(run_duly, task_states, client):
    await task_states.register("test.brief")
    task = await client.schedule("test.brief")
    await client.put_resource("database", 3)
    await client.put_gate("night", duly.GateKind.PAUSE, "test.other")

    for noun, name in (
        ("tasks", task.task_id),
        ("lambdas", "test.brief"),
        ("resources", "database"),
        ("gates", "night"),
        ("queues", "test.brief"),
    ):
        names = (await run_duly(noun, "list", "-o", "name")).stdout.splitlines()
        assert name in names
        assert len(names) == len({*names})
        shown = await run_duly(noun, "show", name, "-o", "name")
        assert (shown.exit_code, shown.stdout.splitlines()) == (0, [name]), noun
        as_json = await run_duly(noun, "show", name, "--output", "json")
        assert name in json.dumps(json.loads(as_json.stdout.splitlines()[0]))
    both = await run_duly("tasks", "--json", "-o", "name")
    nameless = await run_duly("audit", "-o", "name")
    assert (both.exit_code, nameless.exit_code) == (2, 2)


async def test_wide_has_all_columns_on_one_line_each(run_duly, task_states, client, monkeypatch):
    await task_states.register("test.brief")
    await client.schedule("test.brief")
    monkeypatch.setattr(table, "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setattr(table.shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((60, 24)))

    narrow, wide = (await run_duly("list")).stdout, (await run_duly("list", "-o", "wide")).stdout

    assert "PRIORITY" not in narrow
    heads, row = wide.splitlines()
    assert all(
        each in heads for each in ("TASK ID", "LAMBDA", "PRIORITY", "STATUS", "NEXT OR END", "LAST FAILURE")
    )
    assert "test.brief" in row


def test_every_command_that_writes_json_has_output_and_every_list_watch():
    def walk(command, path=()):
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, (*path, name))
        if not hasattr(command, "commands"):
            yield path, {option for each in command.params for option in each.opts}

    for path, options in walk(ROOT):
        if "--json" in options:
            assert {"--output", "-o"} <= options, path
        if path[-1] in {"list", "show", "get"}:
            assert {"--watch", "-w", "--json"} <= options, path


def test_tab_completes_no_name_that_a_shell_would_run() -> None:
    assert known_names._is_plain("shop/order.price")
    assert not any(known_names._is_plain(name) for name in ("$(touch x)", "\\$(touch x)", "a;b", "`x`", ""))
