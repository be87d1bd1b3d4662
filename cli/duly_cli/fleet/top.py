"""`duly top`: what waits and runs now, by lambda and priority, refreshed in place."""

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Annotated, Any, NamedTuple

import typer

import duly
from duly_cli.fleet.queues import Lambdas, number_text, queue_as_json, read_order, together, waited
from duly_cli.fleet.top_rates import RateMeter, Rates
from duly_cli.output.colour import Line, Span, painted
from duly_cli.output.safe_text import one_line, say
from duly_cli.output.table import columns, terminal_width
from duly_cli.output.watching import draw, parse_interval
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected

_HOSTS_EVERY = 5.0
_LINES_ABOVE = 5
"""Of the screen: hosts, gates, a blank line, the heads; and one that stays free."""
_ROWS_OF_A_PIPE = 20
_OTHER_SCREEN, _FIRST_SCREEN = "\x1b[?1049h\x1b[?25l\x1b[2J", "\x1b[?25h\x1b[?1049l"
_CUT = "…"
_LEAST_NAME = 8
_WANTED_NAME = 24
_HEADS = (
    *("PRIORITY", "READY", "FOR", "IN/s", "OUT/s", "HELD", "WAITING", "BACKING OFF", "SCHEDULED", "HOSTS"),
    "LAMBDA",
)
"""As `duly queues` has them, and the SDK."""
_LEFT_OUT_FIRST = ("BACKING OFF", "SCHEDULED", "WAITING")
_FEW = 100


class Picture(NamedTuple):
    """What there was at one time."""

    hosts: "Sequence[duly.Host]"
    gates: "Sequence[duly.Gate]"
    queues: "Sequence[tuple[duly.LambdaQueue, Rates]]"


def add_command(app: typer.Typer) -> None:
    """Add `top`."""
    app.command("top", rich_help_panel="For operators")(top)


def top(
    lambdas: Lambdas = None,
    order: Annotated[
        str,
        typer.Option("--order", help="backlog: the most due tasks first; age: the longest wait first; name."),
    ] = "backlog",
    interval: Annotated[str, typer.Option("--interval", help="How often to look.")] = "2s",
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, max=1000, help="Queues at most. Default: as many as the screen has.", show_default=False
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Look twice, an interval apart, and show the second picture.")
    ] = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Watch what waits and runs, by lambda and priority, until Ctrl-C. Numbers with ~ are estimates.

    IN/s are scheduled, OUT/s end, over up to ten seconds. READY counts those in queues of SQS, too; `duly queues list --help`
    says what the other columns count. Without a terminal, each picture follows the one before.
    """
    seconds = parse_interval(interval, "--interval").total_seconds()
    sorted_by = read_order(order)
    with connected(address) as client:
        look = _looking(client, lambdas or (), sorted_by, lambda: limit or _rows())
        if once:
            look()
            time.sleep(seconds)
            _show(look(), as_json=as_json)
            return
        with _screen(wanted=not as_json):
            while True:
                _show(look(), as_json=as_json, in_place=True)
                time.sleep(seconds)


def _looking(
    client: "duly.Client", lambdas: Sequence[str], order: duly.QueueOrder | None, most: Callable[[], int]
) -> Callable[[], Picture]:
    """Return what makes the next picture."""
    meter = RateMeter()
    states = [each for each in duly.HostState if each is not duly.HostState.STOPPED]
    hosts: list[duly.Host] = []
    gates: list[duly.Gate] = []
    asked_at = float("-inf")

    def look() -> Picture:
        nonlocal hosts, gates, asked_at
        if time.monotonic() - asked_at > _HOSTS_EVERY:
            hosts = list(client.hosts(states=states, page_size=1000))
            gates = client.gates()
            asked_at = time.monotonic()
        limit = most()
        found = list(islice(client.queues(lambdas, order=order, include_rates=True, page_size=limit), limit))
        rated = [(queue, meter.of(queue)) for queue in found]
        meter.note(found)
        return Picture(hosts, gates, rated)

    return look


def _rows() -> int:
    if not sys.stdout.isatty():
        return _ROWS_OF_A_PIPE
    return max(1, shutil.get_terminal_size().lines - _LINES_ABOVE)


@contextmanager
def _screen(*, wanted: bool) -> Iterator[None]:
    """Draw on the terminal's other screen, and leave the first as it was."""
    if not wanted or not sys.stdout.isatty():
        yield
        return
    sys.stdout.write(_OTHER_SCREEN)
    try:
        yield
    finally:
        sys.stdout.write(_FIRST_SCREEN)
        sys.stdout.flush()


def _show(picture: Picture, *, as_json: bool, in_place: bool = False) -> None:
    if as_json:
        say(json.dumps(picture_as_json(picture)))
        sys.stdout.flush()
        return
    width = terminal_width()
    text = painted(picture_lines(picture, width))
    if in_place and width is not None:
        draw(text)
    else:
        typer.echo(f"{text}\n" if in_place else text)
        sys.stdout.flush()


def picture_as_json(picture: Picture) -> dict[str, Any]:
    """A picture as an object."""
    return {
        "hosts": _host_numbers(picture.hosts),
        "gates": [gate.name for gate in picture.gates],
        "queues": [
            queue_as_json(queue) | {"scheduled_per_second": rates.scheduled, "ended_per_second": rates.ended}
            for queue, rates in picture.queues
        ],
    }


def _host_numbers(hosts: "Sequence[duly.Host]") -> dict[str, int]:
    states = [each.state for each in hosts]
    alive = [each for each in hosts if each.state is not duly.HostState.SILENT]
    return {
        "alive": states.count(duly.HostState.ALIVE),
        "draining": states.count(duly.HostState.DRAINING),
        "silent": states.count(duly.HostState.SILENT),
        "slots": sum(each.slots for each in alive),
        "busy_slots": sum(each.busy_slots for each in alive),
    }


def picture_lines(picture: Picture, width: int | None) -> Iterator[str]:
    """A picture as lines; the middle of a lambda's name is left out where the name exceeds the width."""
    numbers = _host_numbers(picture.hosts)
    states = ", ".join(
        f"{numbers[name]} {name}"
        for name in ("alive", "draining", "silent")
        if numbers[name] or name == "alive"
    )
    yield f"hosts: {states}   slots: {numbers['busy_slots']} of {numbers['slots']} busy"
    if picture.gates:
        line = _gates_line(picture.gates, width)
        yield Line.of(line, [Span(0, len(line), "warn")])
    yield ""
    if not picture.queues:
        yield "no live tasks"
        return
    table = [_HEADS, *(_row(queue, rates) for queue, rates in picture.queues)]
    heads, *rows = table if width is None else _fitted(table, width)
    yield from columns(heads, rows, width, styles={"HOSTS": lambda cell: "bad" if cell == "0" else ""})


def _fitted(table: Sequence[Sequence[str]], width: int) -> Sequence[Sequence[str]]:
    """Return a table within a width: columns are left out for a name of some length, then the middle of names is."""
    wanted = min(_WANTED_NAME, max(len(row[-1]) for row in table))
    for head in (*_LEFT_OUT_FIRST, ""):
        columns_before = [*zip(*(row[:-1] for row in table), strict=True)]
        room = width - sum(max(map(len, column)) + 2 for column in columns_before)
        if room >= wanted or not head:
            break
        place = table[0].index(head)
        table = [(*row[:place], *row[place + 1 :]) for row in table]
    return [(*row[:-1], _shortened(row[-1], max(room, _LEAST_NAME))) for row in table]


def _gates_line(gates: "Sequence[duly.Gate]", width: int | None) -> str:
    """Say that gates hold tasks back: what is due behind them counts as due."""
    names = ", ".join(f"{gate.name} ({gate.kind.name.lower()} {gate.lambda_name})" for gate in gates)
    head = "gates in force (duly gates list): "
    return head + (names if width is None else _cut(names, max(width - len(head), _LEAST_NAME)))


def _row(queue: "duly.LambdaQueue", rates: Rates) -> Sequence[str]:
    return (
        queue.priority.name.lower(),
        number_text(together(queue.ready, queue.enqueued)),
        waited(queue),
        _rate_text(rates.scheduled, is_estimated=False),
        _rate_text(rates.ended, is_estimated=rates.is_estimated),
        number_text(together(queue.claimed, queue.processing)),
        number_text(queue.waiting),
        number_text(queue.backing_off),
        number_text(queue.scheduled),
        str(queue.hosts),
        one_line(queue.lambda_name),
    )


def _rate_text(rate: float | None, *, is_estimated: bool) -> str:
    if rate is None:
        return "-"
    if rate < _FEW:
        return f"{'~' if is_estimated else ''}{rate:.1f}"
    return number_text(duly.TaskCount(round(rate), is_estimated))


def _shortened(name: str, room: int) -> str:
    """Return a name within a width: its middle is left out, because names often differ at their end."""
    if len(name) <= room:
        return name
    kept = room - len(_CUT)
    return f"{name[: kept // 2]}{_CUT}{name[len(name) - (kept - kept // 2) :]}"


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}{_CUT}"
