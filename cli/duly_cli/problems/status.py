"""`duly status`: is anything wrong, since when, whom it hits, and what ends it."""

import os
import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Annotated

import typer

import duly
from duly_cli.output.colour import Line, Span, say_lines
from duly_cli.output.error_text import error_text
from duly_cli.output.json_text import as_object, json_text
from duly_cli.output.safe_text import counted, one_line, say
from duly_cli.output.table import terminal_width
from duly_cli.output.watching import Watch, age_text, repeatedly
from duly_cli.startup.option_values import invalid
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, connected

EXIT_PROBLEMS = 1
EXIT_NO_ANSWER = 2
_WIDTH, _WIDEST = 80, 120
_INDENT = " " * 4
_STYLES = {duly.ProblemSeverity.CRITICAL: "bad", duly.ProblemSeverity.WARNING: "warn"}
_DAY = timedelta(days=1)


def add_command(app: typer.Typer) -> None:
    """Add `status`."""
    app.command("status", rich_help_panel="For operators")(status)


def status(
    lambda_name: Annotated[
        str, typer.Option("--lambda", help="Only what hits this lambda.", show_default=False)
    ] = "",
    host: Annotated[
        str,
        typer.Option("--host", help="Only what is about this host: its name, or its id.", show_default=False),
    ] = "",
    kinds: Annotated[
        list[str] | None,
        typer.Option("--kind", help="Only this kind, such as no_host; may be repeated.", show_default=False),
    ] = None,
    cell: Annotated[
        str,
        typer.Option(
            "--cell", help="Only what is wrong in this cell: `duly cells` lists them.", show_default=False
        ),
    ] = "",
    watch: Watch = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON, for scripts: one object.")] = False,
) -> None:
    """Say whether anything is wrong, since when, whom it hits, and what ends it.

    Exit 0: healthy, with information at most. 1: problems. 2: no answer, or none that is fresh.
    """
    wanted = [_kind(each) for each in kinds or ()]
    codes: list[int] = []
    try:
        with connected(address) as client:

            def show() -> None:
                try:
                    found = client.problems(lambda_name=lambda_name, host=host, kinds=wanted, cell=cell)
                except duly.UnavailableError as error:
                    if watch is None:
                        raise
                    say(f"no answer: {error_text(error)}", err=True)
                    return
                codes.append(exit_code(found))
                if as_json:
                    say(json_text(as_object(found)))
                else:
                    say_lines(status_lines(found, of=_narrowed(lambda_name, host, wanted, cell)))

            repeatedly(show, watch, as_json=as_json)
    except typer.Exit as error:
        is_unusable = error.exit_code == os.EX_CONFIG
        raise typer.Exit(os.EX_CONFIG if is_unusable else EXIT_NO_ANSWER) from error
    raise typer.Exit(codes[-1] if codes else EXIT_NO_ANSWER)


def _narrowed(lambda_name: str, host: str, kinds: Sequence[duly.ProblemKind], cell: str) -> str:
    """Return what the status is of: without it, a filter would make the whole look healthy."""
    named = [each.name.lower().replace("_", " ") for each in kinds]
    in_cell = f"cell {cell}" if cell else ""
    return ", ".join(each for each in (lambda_name, host, *named, in_cell) if each)


def _kind(text: str) -> duly.ProblemKind:
    try:
        return duly.ProblemKind[text.upper().replace("-", "_")]
    except KeyError:
        names = ", ".join(each.name.lower() for each in duly.ProblemKind)
        raise invalid("--kind", f"must be one of {names}") from None


def exit_code(found: "duly.Problems") -> int:
    """Return what a script is to know."""
    if found.problem_count:
        return EXIT_PROBLEMS
    return EXIT_NO_ANSWER if found.is_stale else 0


def status_lines(found: "duly.Problems", of: str = "") -> Iterator[str]:
    """Write the status in a line, and below it what is wrong, the worst first."""
    yield _head(found, of)
    yield from map(_cell_line, found.cells)
    width = min(terminal_width() or _WIDTH, _WIDEST)
    for problem in found.problems:
        yield ""
        yield from _problem_lines(problem, width)
    if found.left_out:
        yield ""
        yield f"{counted(found.left_out, 'more problem')} not shown: --kind, --lambda and --host show fewer at a time"


def _head(found: "duly.Problems", of: str) -> Line:
    if found.status is duly.ProblemStatus.UNKNOWN:
        text, style = "Unknown: no Frontend has looked yet", "warn"
    elif found.problem_count:
        text, style = counted(found.problem_count, "problem"), "bad"
    elif found.is_stale:
        text, style = "Unknown", "warn"
    else:
        text, style = "Healthy", "good"
    name = f" ({one_line(of)})" if of else ""
    as_of = ""
    if found.as_of is not None:
        old = "" if found.age is None else f", {age_text(found.age)} old"
        as_of = f" as of {_clock(found.as_of)}{old}{', stale' if found.is_stale else ''}"
    return Line.of(f"{text}{name}{as_of}", [Span(0, len(text), style)])


def _cell_line(cell: "duly.CellStatus") -> Line:
    """Return how a cell stands. A problem of several cells counts in each of them."""
    name = f"{_INDENT}cell {one_line(cell.name)}: "
    if not cell.is_answering:
        text, style = "does not answer", "bad"
    elif cell.problem_count:
        text, style = counted(cell.problem_count, "problem"), "bad"
    else:
        text, style = "healthy", "good"
    old = "" if cell.age is None or not cell.is_answering else f", {age_text(cell.age)} old"
    return Line.of(f"{name}{text}{old}", [Span(len(name), len(name) + len(text), style)])


def _problem_lines(problem: "duly.Problem", width: int) -> Iterator[str]:
    severity = getattr(problem.severity, "name", "?").upper()
    since = f"since {_clock(problem.since_at)} ({_age(problem.since_at)})"
    cells = ", ".join(map(one_line, problem.cells))
    cells = f" in cell {cells}" if cells and cells != problem.subject else ""
    head = f"{severity:<11} {_kind_text(problem)}{cells}, {since}"
    yield Line.of(head, [Span(0, len(severity), _STYLES.get(problem.severity, ""))])
    yield from _wrapped(_sentence(problem), width)
    if problem.hits:
        yield from _wrapped(f"hits: {problem.hits}", width)
    longest = max((len(each.command) for each in problem.commands), default=0)
    for each in problem.commands:
        # a command is not broken: it is copied as a whole
        purpose = f"  # {one_line(each.purpose)}"
        line = f"{_INDENT}{one_line(each.command)}"
        if len(_INDENT) + longest + len(purpose) <= width:
            yield f"{line:<{len(_INDENT) + longest}}{purpose}"
        else:
            yield f"{_INDENT}# {one_line(each.purpose)}"
            yield line


def _kind_text(problem: "duly.Problem") -> str:
    return getattr(problem.kind, "name", "unknown").lower().replace("_", " ")


def _sentence(problem: duly.Problem) -> str:
    """Return what is wrong as a sentence; names keep the letters that they have, for they are copied."""
    text = problem.text
    return text if problem.subject and text.startswith(problem.subject) else f"{text[:1].upper()}{text[1:]}"


def _wrapped(text: str, width: int) -> Sequence[str]:
    return textwrap.wrap(
        one_line(text),
        width,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_on_hyphens=False,
    )


def _clock(instant: datetime) -> str:
    """Return the time of the day; with the day, if that is another."""
    local = instant.astimezone()
    if abs(datetime.now().astimezone() - local) < _DAY:
        return f"{local:%H:%M:%S}"
    return f"{local:%Y-%m-%d %H:%M}"


def _age(instant: datetime) -> str:
    return age_text(datetime.now().astimezone() - instant)
