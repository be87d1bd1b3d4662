"""C14, each tick of a time table has one task."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from duly_wire.enums import Overlap
from tests.chaos.checker.cases import Case
from tests.chaos.checker.lines import Lines
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import SECOND, History, TickRow, TimeTableRow


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
    due = range(table.first_ns, table.next_ns, table.every_ns)
    twice = [instant for instant, number in numbers.items() if number > 1]
    astray = [instant for instant in numbers if instant not in due]
    lost = [instant for instant in due if not numbers[instant]] if table.overlap == Overlap.ALLOW else []
    for rule, instants, expected in (
        ("C14.twice", twice, "each tick has one task; some have more"),
        ("C14.astray", astray, "only ticks that were decided have tasks; others have"),
        ("C14.lost", lost, "each tick that was decided has a task; some have none"),
    ):
        if instants:
            shown = ", ".join(f"{instant / SECOND:.3f} s" for instant in sorted(instants)[:5])
            yield Violation(rule, "", f"{table.name}: {expected}: {len(instants)}", (shown,))


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
