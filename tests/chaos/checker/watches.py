"""C20, a watch tells each end once, in order, and is lost for a reason only."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from duly_core.tasks.lifecycle import FINAL
from tests.chaos.checker.cases import Case
from tests.chaos.checker.lines import Lines
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import History, Told, Transition, WatchStretch

_LOSE = ("postgres_failover", "zone_", "database_")
"""Kinds of faults, by how they begin, after which another server may go on: the last ones are those of zones (tests/zones)."""


def watches(history: History, cases: Mapping[str, Case], lines: Lines) -> Iterator[Violation]:
    """C20 of each watch."""
    told_by: dict[int, list[Told]] = defaultdict(list)
    for each in history.told:
        told_by[each.watch].append(each)
    for stretch in history.watches:
        told = told_by[stretch.number]
        failed_over = any(
            fault.kind.startswith(_LOSE) and fault.from_ns <= stretch.until_ns for fault in history.faults
        )
        if stretch.lost and not failed_over:
            yield Violation("C20.lost", "", f"a watch goes on; it was lost: {stretch.lost}")
        yield from _tasks(stretch, told, cases, lines)
        yield from _runs(told)
        yield from _graphs(history, stretch, told, cases)


def _tasks(
    stretch: WatchStretch, told: Sequence[Told], cases: Mapping[str, Case], lines: Lines
) -> Iterator[Violation]:
    said: dict[str, list[str]] = defaultdict(list)
    for each in told:
        if each.kind == "task":
            said[each.task_id].append(each.status)
    for task_id in sorted({*said, *cases}):
        case = cases.get(task_id)
        ends = [move for move in case.transitions if _is_end(move)] if case is not None else []
        if stretch.lost:
            ends = [move for move in ends if move.at_ns < stretch.until_ns or said[task_id]]
        # one that was written before the watch had begun, and committed later, may be told
        before = [move.after for move in ends if move.at_ns <= stretch.begun_ns]
        since = [move.after for move in ends if move.at_ns > stretch.begun_ns]
        right = [[*before[place:], *since] for place in range(len(before) + 1)]
        told_of = said.get(task_id, [])
        if told_of in right or (stretch.lost and any(each[: len(told_of)] == told_of for each in right)):
            continue
        more, fewer = Counter(told_of) - Counter(right[0]), Counter(right[-1]) - Counter(told_of)
        rule = "C20.twice" if more else "C20.missing" if fewer else "C20.order"
        yield Violation(
            rule,
            task_id,
            f"a watch tells each end once, in order: {', '.join(since) or 'none'}; it told of {', '.join(told_of) or 'none'}",
            tuple(map(lines.transition, ends)),
        )


def _runs(told: Sequence[Told]) -> Iterator[Violation]:
    """Runs of a task come in their order, each once, and before the end that comes after them."""
    last: dict[str, tuple[int, str]] = {}
    for each in told:
        if each.kind == "graph":
            continue
        run, kind = last.get(each.task_id, (-1, ""))
        if each.run < run or (each.run == run and each.kind == "run"):
            yield Violation(
                "C20.order",
                each.task_id,
                f"a watch tells runs in their order, each once; after the end of {kind} {run} it told of {each.kind} {each.run}",
            )
        last[each.task_id] = each.run, each.kind


def _graphs(
    history: History, stretch: WatchStretch, told: Sequence[Told], cases: Mapping[str, Case]
) -> Iterator[Violation]:
    """A graph is told of once, after its nodes."""
    nodes: dict[str, list[str]] = defaultdict(list)
    for node in history.nodes:
        nodes[node.graph_id].append(node.task_id)
    finished = Counter(each.graph_id for each in told if each.kind == "graph")
    places = {each.graph_id: place for place, each in enumerate(told) if each.kind == "graph"}
    ended: dict[str, int] = {}
    for place, each in enumerate(told):
        if each.kind == "task":
            ended.setdefault(each.task_id, place)
    for row in history.graphs:
        ends = [_last_end(cases.get(task_id)) for task_id in nodes[row.graph_id]]
        whole = row.finished and all(end > stretch.begun_ns for end in ends) and ends and not stretch.lost
        number = finished[row.graph_id]
        if number > 1 or (whole and not number):
            rule = "C20.twice" if number else "C20.missing"
            yield Violation(
                rule, "", f"a watch tells once that graph {row.graph_id} finished; {number} times"
            )
        elif number and any(ended.get(task_id, -1) > places[row.graph_id] for task_id in nodes[row.graph_id]):
            yield Violation(
                "C20.order", "", f"a watch tells of graph {row.graph_id} after its nodes; it did not"
            )


def _is_end(move: Transition) -> bool:
    return move.after in FINAL and move.before not in FINAL


def _last_end(case: Case | None) -> int:
    return (
        max((move.at_ns for move in case.transitions if _is_end(move)), default=0) if case is not None else 0
    )
