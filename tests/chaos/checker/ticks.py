"""C14, each tick of a time table has one task; with a calendar none is in closed time."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

from duly_wire.enums import Overlap
from tests.chaos.checker.cases import Case
from tests.chaos.checker.lines import Lines
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import SECOND, History, TickRow, TimeTableRow

_MINUTE = 60 * SECOND
_MINUTES_OF_DAY = 24 * 60


def ticks(history: History, cases: Mapping[str, Case], lines: Lines) -> Iterator[Violation]:
    """C14 of all time tables."""
    fired: dict[str, list[TickRow]] = defaultdict(list)
    for tick in sorted(history.ticks, key=lambda tick: tick.tick_ns):
        fired[tick.name].append(tick)
    for table in history.time_tables:
        yield from _each_once(table, fired[table.name])
        if table.overlap == Overlap.SKIP:
            yield from _one_lives(fired[table.name], cases, lines)


def _each_once(table: TimeTableRow, fired: Sequence[TickRow]) -> Iterator[Violation]:
    numbers = Counter(tick.tick_ns for tick in fired)
    due = _due(table)
    in_closed_time = [instant for instant in numbers if table.has_calendar and not _is_open(table, instant)]
    twice = [instant for instant, number in numbers.items() if number > 1]
    astray = [instant for instant in numbers if instant not in due]
    lost = [instant for instant in due if not numbers[instant]] if table.overlap == Overlap.ALLOW else []
    for rule, instants, expected in (
        ("C14.twice", twice, "each tick has one task; some have more"),
        ("C14.astray", astray, "only ticks that were decided have tasks; others have"),
        ("C14.closed", in_closed_time, "with a calendar no tick is in closed time; some are"),
        ("C14.lost", lost, "each tick that was decided has a task; some have none"),
    ):
        if instants:
            shown = ", ".join(f"{instant / SECOND:.3f} s" for instant in sorted(instants)[:5])
            yield Violation(rule, "", f"{table.name}: {expected}: {len(instants)}", (shown,))


def _due(table: TimeTableRow) -> Collection[int]:
    """Return the instants of the ticks that were decided."""
    own = range(table.first_ns, table.next_ns, table.every_ns)
    if not table.has_calendar:
        return own
    ticks = {instant for instant in own if _is_open(table, instant)}
    if table.moves:
        # those that come just before the table, too: they move to its first opening
        before = range(
            table.first_ns - _MINUTE // table.every_ns * table.every_ns, table.first_ns, table.every_ns
        )
        closed = (instant for instant in (*before, *own) if not _is_open(table, instant))
        ticks |= {opening for instant in closed if (opening := _opening(table, instant)) >= table.first_ns}
    return sorted(instant for instant in ticks if instant < table.next_ns)


def _is_open(table: TimeTableRow, instant: int) -> bool:
    return instant // _MINUTE % _MINUTES_OF_DAY in table.open_minutes


def _opening(table: TimeTableRow, instant: int) -> int:
    """Return when the first minute after an instant in closed time begins that is open; without one: when time ends."""
    minute = instant // _MINUTE
    following = range(minute + 1, minute + 1 + _MINUTES_OF_DAY)
    found = next((each for each in following if each % _MINUTES_OF_DAY in table.open_minutes), None)
    return table.next_ns if found is None else found * _MINUTE


def _one_lives(fired: Sequence[TickRow], cases: Mapping[str, Case], lines: Lines) -> Iterator[Violation]:
    """Where ticks are left out while a task lives, no two live at a time."""
    for earlier, later in pairwise(fired):
        before, after = cases.get(earlier.task_id), cases.get(later.task_id)
        if before is None or after is None or not after.transitions:
            continue
        made = after.transitions[0]
        if before.end is None or before.end.sequence > made.sequence:
            yield Violation(
                "C14.overlap",
                later.task_id,
                f"{later.name}: a tick has a task when that of the tick before has ended; {earlier.task_id} had not",
                (lines.transition(made), lines.final(before.final)),
            )
