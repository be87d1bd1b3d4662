"""The commands of the command line: all that list or show have `--output` and `--watch`, read alike everywhere."""

import enum
import functools
import inspect
import json
import re
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from duly_cli.output.safe_text import say
from duly_cli.output.table import all_columns
from duly_cli.output.watching import Watch, repeatedly
from duly_cli.startup.option_values import invalid

Function = TypeVar("Function", bound=Callable[..., Any])

_READING = frozenset({"list", "get", "show", "whoami", "activity", "definitions", "objectives"})
"""Commands that list or show: their tables may be wide, be names alone, and be shown again and again."""
_SHOWING = _READING | {"wait", "explain", "reveal", "preview", "check", "fair"}
"""Those, and commands that show something once."""
_NAMES = (
    *("task_id", "graph_id", "token_id", "host_id", "instance_id"),
    *("fair_key", "key", "name", "principal", "lambda", "lambda_name"),
)
"""What identifies an object of JSON: the first that it has."""
_INTERVAL = re.compile(r"[0-9]+(\.[0-9]+)?[a-z0-9]*", re.ASCII)
_USUAL_INTERVAL = "2s"


class Output(enum.StrEnum):
    """How a command writes what it found."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    NAME = "name"


class Written(enum.StrEnum):
    """How a command writes what it did: there is no table whose columns or names could be chosen."""

    TABLE = "table"
    JSON = "json"


_Output = Annotated[
    Output | None,
    typer.Option(
        "--output",
        "-o",
        help="table; wide: all columns, however long the lines; json: as --json; name: only what `show` takes.",
        show_default="table",
    ),
]
_Written = Annotated[
    Written | None,
    typer.Option("--output", "-o", help="table, or json: as --json.", show_default="table"),
]


class Verb(TyperCommand):
    """A command: `--watch` needs no value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put in the interval where none was said."""
        if any("--watch" in each.opts for each in self.params):
            args = [*_with_interval(args)]
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = _in_words(error)
            raise


class Verbs(typer.Typer):
    """Commands, each a `Verb`; those that write JSON have `--output`, too, and those that list or show `--watch`."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[Function], Function]:
        """Add a command as the base class does."""
        options.setdefault("cls", Verb)
        register = super().command(name, **options)

        def add(function: Function) -> Function:
            verb = name or function.__name__
            register(_with_output(function, is_reading=verb in _READING, is_showing=verb in _SHOWING))
            return function

        return add


_NUMBERS = {
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
}
"""What a number must be, by what the library that reads it says."""
_MOST_SHOWN = 40


def _in_words(error: typer.BadParameter) -> str:
    """Return what is wrong with the value of an option: of a number, what it must be and what was typed."""
    try:
        found = error.__cause__.errors()[0]  # type: ignore[union-attr]  # pydantic's, which is loaded only by then
        wanted = _NUMBERS[found["type"]].format(**found.get("ctx", {}))
    except (AttributeError, LookupError):
        return error.message
    return f"must be {wanted}, not {str(found['input'])[:_MOST_SHOWN]!r}"


def _with_interval(args: Sequence[str]) -> list[str]:
    """Return the words with an interval behind each `--watch` that has none."""
    words: list[str] = []
    for place, word in enumerate(args):
        words.append(word)
        if word == "--":
            return [*words, *args[place + 1 :]]
        following = args[place + 1] if place + 1 < len(args) else ""
        if word in ("-w", "--watch") and not _INTERVAL.fullmatch(following):
            words.append(_USUAL_INTERVAL)
    return words


def _with_output(function: Function, *, is_reading: bool, is_showing: bool) -> Callable[..., Any]:
    """Return a command with the options that one of its kind has beside its own."""
    own = inspect.signature(function, eval_str=True)
    if "as_json" not in own.parameters:
        return function
    added: dict[str, Any] = {"output": _Output if is_showing else _Written}
    if is_reading and "watch" not in own.parameters:
        added["watch_interval"] = Watch

    @functools.wraps(function)
    def command(
        *, output: Output | Written | None = None, watch_interval: str | None = None, **values: Any
    ) -> None:
        form = _form(output, as_json=values["as_json"])
        if form == Output.NAME and (watch_interval or values.get("watch")):
            raise invalid("--output", "name goes without --watch")
        values["as_json"] = form in (Output.JSON, Output.NAME)

        def show() -> None:
            function(**values)

        if form == Output.NAME:
            _say_names(show)
        elif form == Output.WIDE:
            with all_columns():
                repeatedly(show, watch_interval)
        else:
            repeatedly(show, watch_interval, as_json=values["as_json"])

    mine = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in added.items()
    ]
    command.__signature__ = own.replace(parameters=[*own.parameters.values(), *mine])  # type: ignore[attr-defined]
    command.__annotations__ = {**function.__annotations__, **added}
    return command


def _form(output: Output | Written | None, *, as_json: bool) -> str:
    if as_json and output not in (None, Output.JSON):
        raise invalid("--output", f"say either --json or --output {output}")
    return Output.JSON if as_json else output or Output.TABLE


def _say_names(show: Callable[[], None]) -> None:
    """Print only what identifies each object that `show` writes as JSON, once."""
    written = StringIO()
    try:
        with redirect_stdout(written):
            show()
    finally:  # of several tasks one may not exist
        names = dict.fromkeys(_name(json.loads(line)) for line in written.getvalue().splitlines())
        for name in names:
            say(name)


def _name(found: Any) -> str:
    for field in _NAMES:
        if isinstance(found, dict) and field in found:
            return str(found[field])
    raise invalid("--output", "what this command shows has no names: take json")
