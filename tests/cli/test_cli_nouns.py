"""Every noun of the command line is read by the same rules: `list`, `get` and `show`, and no answer to a wrong verb."""

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from duly_cli.__main__ import app
from duly_cli.startup.nouns import Noun

NOUNS = {name: each for name, each in get_command(app).commands.items() if isinstance(each, Noun)}  # type: ignore[attr-defined]
LISTED = {
    name: each
    for name, each in NOUNS.items()
    if "list" in each.commands and name not in {"attachments", "audit", "cells"}
}
"""The list of attachments is that of a task, which is named; what the audit lists has no names; cells are listed without a Frontend."""
VERBS = {verb for each in NOUNS.values() for verb in each.commands}
DESTRUCTIVE = {"cancel", "delete", "purge", "redrive", "remove", "reset", "revoke", "rollback"}


def run(*words: str) -> Result:
    """Run a command that must not get as far as to a Frontend."""
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "200", "DULY_ADDRESS": "nobody.invalid:1"})


def test_every_noun_lists_gets_and_shows() -> None:
    assert {
        *("lambdas", "sessions", "graphs", "hosts", "gates", "queues", "tables", "resources", "dead-letters"),
        *("services", "grants", "tokens", "settings", "tasks", "backlog", "pools", "calendars", "events"),
        *("breakers", "notifications", "slo"),
    } == set(LISTED)

    for name, noun in LISTED.items():
        assert {"list", "get", "show"} <= set(noun.commands), name


@pytest.mark.parametrize("name", NOUNS)
def test_a_wrong_verb_is_an_error_that_names_the_verbs(name: str) -> None:
    noun = NOUNS[name]
    words = {*VERBS, "ls", "rm", "describe"} | (set() if noun.named else {"frobnicate"})

    wrong = sorted(each for each in words if noun.in_own_words([each])[0] not in noun.commands)
    for arguments in (*([word] for word in wrong), ["--json", wrong[0]]):
        refused = run(name, *arguments)

        assert (refused.exit_code, refused.stdout) == (2, ""), (name, arguments)
        if name not in {"db", "chores", "attachments"}:  # they list nothing, and have no options
            assert f"`duly {name}` has no verb '{arguments[-1]}'" in refused.stderr
            assert all(verb in refused.stderr for verb, each in noun.commands.items() if not each.hidden)


async def test_a_noun_alone_lists_and_what_is_not_there_is_an_error(run_duly, task_states) -> None:
    await task_states.register()

    for name, noun in LISTED.items():
        alone, listed = await run_duly(name), await run_duly(name, "list")
        assert (alone.exit_code, listed.exit_code) == (0, 0), (name, alone.stderr, listed.stderr)
        assert alone.stdout.splitlines()[:1] == listed.stdout.splitlines()[:1]
        for verb in ("get", "show"):
            shown = await run_duly(name, verb, "no-such-thing")
            assert (shown.exit_code, shown.stdout) == (1, ""), (name, verb)
            assert shown.stderr.startswith("duly: "), (name, verb)
        if noun.named:
            meant = await run_duly(name, "lsit")
            assert (meant.exit_code, meant.stdout) == (2, ""), name
            assert f"the verbs of `duly {name}` are list" in meant.stderr


def test_without_words_the_help_is_shown_and_nothing_is_wrong() -> None:
    everything, database = run(), run("db")

    assert (everything.exit_code, database.exit_code) == (0, 0)
    assert "schedule" in everything.stdout
    assert "raise-fences" in database.stdout


def test_nouns_may_be_singular_or_plural() -> None:
    for word in ("graph", "grant", "lambda", "host", "dead-letter", "task", "chore", "breaker", "calendar"):
        assert run(word, "--help").exit_code == 0, word


def test_what_destroys_something_is_never_suggested() -> None:
    for word in ("pauze", "purg", "cancle", "redriv", "remove", "delet"):
        refused = run(word, "mail.send")

        meant = refused.stderr.partition("Did you mean")[2]
        assert refused.exit_code == 2
        assert not any(each in meant for each in DESTRUCTIVE), refused.stderr
    assert "'pause'" in run("pauze", "mail.send").stderr


def test_a_noun_whose_list_needs_a_name_shows_its_help_without_one() -> None:
    alone = run("attachments")

    assert alone.exit_code == 0
    assert "duly attachments [OPTIONS] COMMAND" in alone.stdout
