"""C13, a node runs when what it waits for has happened, each edge is decided once, and a graph ends with its nodes."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from duly_core.tasks.lifecycle import Status
from tests.chaos.checker.cases import Case
from tests.chaos.checker.graph_places import Decision, Waiting
from tests.chaos.checker.lines import Lines
from tests.chaos.checker.overlaps import SignsOfLife
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import Execution, GraphRow, History, Transition

_COUNTED = {
    Status.SUCCESS: "succeeded",
    Status.FATAL_FAILURE: "failed",
    Status.DROPPED: "skipped",
    Status.CANCELLED: "cancelled",
}


def graphs(
    history: History,
    cases: Mapping[str, Case],
    places: Mapping[str, Waiting],
    signs: SignsOfLife,
    lines: Lines,
) -> Iterator[Violation]:
    """C13 of all graphs."""
    for task_id in sorted(places):
        if task_id in cases:
            case, place = cases[task_id], places[task_id]
            yield from _early(case, place, cases, signs, lines)
            yield from _edges(case, place, lines)
            yield from _skipped(case, place, lines)
    for case in cases.values():
        yield from _membership(case, places, lines)
    nodes: dict[str, list[Case | None]] = defaultdict(list)
    for task_id, place in places.items():
        nodes[place.node.graph_id].append(cases.get(task_id))
    for row in history.graphs:
        yield from _counts(row, nodes[row.graph_id])


def _membership(case: Case, places: Mapping[str, Waiting], lines: Lines) -> Iterator[Violation]:
    asked = case.acked.graph if case.acked is not None else ""
    place = places.get(case.task_id)
    if asked and (place is None or place.node.graph_id != asked):
        found = place.node.graph_id if place is not None else "none"
        yield Violation(
            "C13.graph",
            case.task_id,
            f"a node is in the graph that it was scheduled with ({asked}); it is in {found}",
            (lines.final(case.final),),
        )


def _early(
    case: Case, place: Waiting, cases: Mapping[str, Case], signs: SignsOfLife, lines: Lines
) -> Iterator[Violation]:
    """What it waits for had happened when it was released, and was over when it ran."""
    release = next((move for move in case.transitions if move.after == Status.NEW), None)
    if release is None or not place.edges:
        return
    if not place.holds(release):
        shown = [lines.transition(release)]
        shown += [lines.transition(decision.move) for decision in place.decisions.values()]
        yield Violation(
            "C13.early",
            case.task_id,
            f"node {place.node.label} is released when what it waits for has happened; it had not",
            tuple(shown),
        )
        return
    first = min(case.executions, key=lambda each: each.started_ns, default=None)
    if first is None:
        return
    fired = [
        edge.from_task
        for edge in place.edges
        if (decision := place.decisions.get(edge.from_task)) is not None and decision.fires(edge)
    ]
    running = [
        over
        for task_id in fired
        if (over := _running_at(cases[task_id], first.started_ns, signs)) is not None
    ]
    if len(running) == len(fired) if place.node.any_of else running:
        yield Violation(
            "C13.early",
            case.task_id,
            f"node {place.node.label} runs when the runs that it waits for are over; one was not",
            (lines.execution(running[0]), lines.execution(first)),
        )


def _running_at(case: Case, instant_ns: int, signs: SignsOfLife) -> Execution | None:
    return next((each for each in case.executions if signs.until(each) > instant_ns), None)


def _edges(case: Case, place: Waiting, lines: Lines) -> Iterator[Violation]:
    """Each edge is decided once, in the transaction that ends its source."""
    counted: Counter[int] = Counter()
    writes: dict[int, Transition] = {}
    for move in case.transitions:
        if move.before == Status.WAITING and move.after in (Status.WAITING, Status.NEW):
            counted[move.txid] += move.open_edges_before - move.open_edges
            writes[move.txid] = move
    ended = Counter(decision.move.txid for decision in place.decisions.values())
    # those that are decided after it is known what becomes of the node do not count
    wrong = [
        txid
        for txid, number in counted.items()
        if number > ended[txid] or (number < ended[txid] and number and not _is_settled(writes[txid]))
    ]
    release = next((move for move in case.transitions if move.after == Status.NEW), None)
    joined = case.transitions[0] if case.transitions else None
    # a node that a callback added: some edges were decided when it came
    at_once = len(place.edges) - joined.open_edges if joined is not None else 0
    missing = 0
    if release is not None and release is not joined and not place.node.any_of:
        missing = len(place.edges) - at_once - counted.total()
    if joined is not None and at_once > sum(_is_before(each, joined) for each in place.decisions.values()):
        wrong = wrong or [joined.txid]
        writes.setdefault(joined.txid, joined)
    if wrong or missing:
        txid = wrong[0] if wrong else release.txid if release is not None else 0
        yield Violation(
            "C13.edge",
            case.task_id,
            f"an edge to node {place.node.label} is decided once, by the end of its source: {ended[txid]} sources ended in"
            f" transaction {txid}, {counted[txid]} edges were decided; {counted.total()} of {len(place.edges)} in all",
            (lines.transition(writes[txid]) if txid in writes else "no write",),
        )


def _is_before(decision: Decision, joined: Transition) -> bool:
    return decision.move.sequence < joined.sequence or decision.move.txid == joined.txid


def _is_settled(move: Transition) -> bool:
    """Whether it was known after a write of a node that waited what becomes of it."""
    # a node that is parked may run: it waits for its session, or for what else it needs
    return move.after != Status.WAITING or bool(move.doom) or bool(move.parked_on)


def _skipped(case: Case, place: Waiting, lines: Lines) -> Iterator[Violation]:
    """Only what can never run is skipped, and what is skipped never ran."""
    row = case.final
    if row is None or row.status != Status.DROPPED:
        return
    shown = (*map(lines.execution, case.executions), lines.final(row))
    if case.claims or case.executions:
        yield Violation(
            "C13.skip", case.task_id, f"node {place.node.label} was skipped, and so never runs; it did", shown
        )
    elif place.holds():
        yield Violation(
            "C13.skip",
            case.task_id,
            f"node {place.node.label} is skipped if what it waits for cannot happen; it happened",
            shown,
        )


def _counts(row: GraphRow, nodes: list[Case | None]) -> Iterator[Violation]:
    """A graph is finished when all its nodes have ended, and says how they did."""
    if len(nodes) != row.total:
        yield Violation(
            "C13.whole",
            "",
            f"graph {row.graph_id} has {row.total} nodes, all or none; {len(nodes)} are there",
        )
        return
    counts = Counter(
        _COUNTED.get(Status(case.final.status), "open") if case.final.status else "open"
        for case in nodes
        if case is not None and case.final is not None
    )
    said = {name: getattr(row, name) for name in ("open", *_COUNTED.values())}
    if any(counts[name] != number for name, number in said.items()) or row.finished != (not counts["open"]):
        yield Violation(
            "C13.counts",
            "",
            f"graph {row.graph_id} counts its nodes as they are, and is finished when none is open",
            (f"nodes: {dict(counts)}", f"graph: {said}, {'finished' if row.finished else 'not finished'}"),
        )
