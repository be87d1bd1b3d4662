"""The page of the grammar of commands: nouns, verbs, other words for them, and exit codes."""

from collections.abc import Iterator
from typing import Any

import typer

from duly_cli.__main__ import app
from duly_cli.startup.guesses import OTHER_NOUNS, OTHER_WORDS
from duly_cli.startup.nouns import Noun
from scripts.reference.markdown import code, page, table

_INTRODUCTION = """
A command is `duly NOUN VERB [NAME] [OPTIONS]`. These rules hold for every noun:

- A noun alone lists: `duly gates` is `duly gates list`. The singular means the same: `gate` for `gates`.
- `list` lists, `show NAME` shows one, `set NAME` declares one or changes an existing one, `delete NAME` removes it.
- `set` changes only what its options name. `--no-OPTION` removes a value.
- `watch` lists again and again: `duly hosts watch` is `duly hosts list --watch`. With a name it shows that one.
  `duly events watch` follows [what happens](../watching.md) instead.
- Some verbs of tasks and lambdas are shorter commands, too: `duly get`, `list`, `cancel`, `pause`. These pages use them.

| option | of | what it does |
|---|---|---|
| `-h`, `--help` | every command | Explains the command. `duly help NOUN VERB` does the same. |
| `-o table` | what lists, shows or writes JSON | The default: columns that fit the terminal. Less important ones are left out. |
| `-o wide` | what lists or shows | All columns, however long the lines. |
| `-o json` | the same as `table` | The same as `--json`: an object a line. |
| `-o name` | what lists or shows | Only names or ids, a line each, as `show` takes them. |
| `-w`, `--watch`, `--watch 5` | what lists or shows | Shows it again each 2 s, or each 5 s, until Ctrl-C. |

```
duly dead-letters list --lambda mail.send -o name | xargs duly tasks redrive
```

Colours are for terminals only. The environment variable `NO_COLOR` turns them off. Ids and names are never cut: a row that is too wide is
broken, and a word that is longer than the line stays whole. `duly top` alone cuts names.

`duly completion bash` prints a script: the shell completes nouns, verbs and options with Tab.
"""
_EXIT_CODES = (
    ("0", "Done. A list may be empty."),
    (
        "1",
        "Refused or not found: what was named is not there, the server refuses the call, or a task that was waited for failed.",
    ),
    ("2", "The command line is wrong, and nothing was done."),
    (
        "69",
        "No answer: whether a change was made is not known. Commands that reach Postgres, and services: Postgres or SQS was unavailable.",
    ),
    ("78", "A setting or the settings file is unusable: starting again does not help."),
    (
        "1, 2 of `duly status`",
        "1: something is wrong. 2: no answer, or none that is fresh ([status](../operators/status.md)).",
    ),
    ("130", "Ended by Ctrl-C. Services end with 0 after a graceful stop."),
)
_VERBS = ("list", "show", "set", "delete")


def text() -> str:
    """Return the page."""
    nouns = {name: each for name, each in _commands() if isinstance(each, Noun) and not each.hidden}
    return page(
        "The grammar of commands",
        _INTRODUCTION,
        "## Nouns and verbs\n\n" + table(("noun", *_VERBS, "more"), [*_rows(nouns)]),
        "## Exit codes\n\n"
        + table(
            ("code", "meaning"),
            [(code(each) if each.isdigit() else each, said) for each, said in _EXIT_CODES],
        ),
        "## Other words\n\nWords of other command lines mean verbs of Duly, if the noun has no such verb. The first that it has is taken.\n\n"
        + table(("you type", "Duly's verb"), [*_other_verbs()]),
        "A verb before its noun is read if it changes nothing: `duly get lambdas`, `duly describe task ID`. A change is answered by "
        "the command, and nothing is done. Words such as `terminate` and `kill` are answered, too. These nouns are answered by Duly's:\n\n"
        + table(("you type", "Duly's noun"), [*_other_nouns()]),
    )


def _commands() -> Iterator[tuple[str, Any]]:
    yield from getattr(typer.main.get_command(app), "commands", {}).items()


def _rows(nouns: dict[str, Noun]) -> Iterator[tuple[str, ...]]:
    for name, noun in nouns.items():
        verbs = [verb for verb, each in noun.commands.items() if not each.hidden]
        marks = [_link(name, verb) if verb in verbs else "" for verb in _VERBS]
        more = ", ".join(_link(name, verb) for verb in verbs if verb not in _VERBS)
        yield (code(name), *marks, more)


def _link(noun: str, verb: str) -> str:
    return f"[{verb}](cli.md#duly-{noun}-{verb})"


def _other_verbs() -> Iterator[tuple[str, str]]:
    meant: dict[tuple[str, ...], list[str]] = {}
    for word, verbs in OTHER_WORDS.items():
        meant.setdefault(verbs, []).append(word)
    for verbs, words in meant.items():
        others = [word for word in words if (word,) != verbs]
        if others:
            yield ", ".join(map(code, others)), ", ".join(map(code, verbs))


def _other_nouns() -> Iterator[tuple[str, str]]:
    meant: dict[str, list[str]] = {}
    for word, noun in OTHER_NOUNS.items():
        meant.setdefault(noun, []).append(word)
    for noun, words in meant.items():
        yield ", ".join(map(code, words)), code(noun)
