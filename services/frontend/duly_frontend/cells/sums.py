"""Makes one answer of whole answers of several cells: sums, searches, problems. No I/O."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from duly_core.cells.directory import Directory
from duly_core.problems.kinds import CAUSES_FIRST, Kind
from duly_core.problems.problem import fingerprint_of
from duly_frontend.cells.away import cell_away, cell_late
from duly_frontend.cells.joining import cells as cells_of
from duly_frontend.cells.joining import gates, instant, newest_report
from duly_frontend.problems.wire import problem_to_wire
from duly_wire.time_conversion import to_datetime, to_duration, to_timedelta
from duly_wire.v1 import (
    fleet_pb2,
    gates_pb2,
    inspection_pb2,
    limits_pb2,
    objectives_pb2,
    problems_pb2,
)

_MOST_SERVICES = 1_000
_MOST_MARKS = 200
_MOST_PROBLEMS = 200
_MOST_OF_A_PROBLEM = 20
_MOST_SESSIONS = 100
_DEFAULT_HITS = 5
_PLACES = {int(kind): place for place, kind in enumerate(CAUSES_FIRST)}
_AWAY = problems_pb2.PROBLEM_KIND_STORE_AWAY
_CELL_AWAY = problems_pb2.PROBLEM_KIND_CELL_AWAY
"""Told by the board of another cell: it is of its subject."""
_OF_A_STORE = frozenset({problems_pb2.PROBLEM_KIND_STORE_AWAY, problems_pb2.PROBLEM_KIND_STORE_SLOW})
"""Each cell has its own: the cell is the subject."""
_GONE = (fleet_pb2.HOST_STATE_STOPPED, fleet_pb2.HOST_STATE_SILENT)


def by_key(rows: Iterable[Any], key: str) -> dict[str, list[Any]]:
    """Return rows by the text in a field, sorted by it."""
    found = defaultdict(list)
    for row in rows:
        found[getattr(row, key)].append(row)
    return {name: found[name] for name in sorted(found)}


def oldest(answers: Iterable[Any], field: str, into: Any) -> None:
    """Set a moment to the earliest of those that the answers have."""
    moments = [getattr(answer, field) for answer in answers if answer.HasField(field)]
    if moments:
        getattr(into, field).CopyFrom(min(moments, key=instant))


def list_gates(_request: Any, answers: Mapping[str, Any]) -> gates_pb2.ListGatesResponse:
    """Return the gates of all cells. One on all lambdas, which several cells have, is one row."""
    rows = defaultdict(list)
    for answer in answers.values():
        for gate in answer.gates:
            rows[gate.name, _lambda_of(gate.scope)].append(gate)
    return gates_pb2.ListGatesResponse(gates=[gates(rows[key]) for key in sorted(rows)])


def list_breakers(_request: Any, answers: Mapping[str, Any]) -> gates_pb2.ListBreakersResponse:
    """Return the breakers of all cells."""
    rows = [row for answer in answers.values() for row in answer.breakers]
    return gates_pb2.ListBreakersResponse(breakers=sorted(rows, key=_lambda_of))


def list_objectives(_request: Any, answers: Mapping[str, Any]) -> objectives_pb2.ListObjectivesResponse:
    """Return the objectives of all cells."""
    rows = [row for answer in answers.values() for row in answer.objectives]
    return objectives_pb2.ListObjectivesResponse(objectives=sorted(rows, key=_lambda_of))


def list_services(_request: Any, answers: Mapping[str, Any]) -> fleet_pb2.ListServicesResponse:
    """Return each process once, however many cells it serves."""
    rows = by_key((each for answer in answers.values() for each in answer.services), "instance_id")
    services = [newest_report(group) for group in rows.values()]
    services.sort(key=lambda each: (each.state in _GONE, each.service, each.instance_id))
    return fleet_pb2.ListServicesResponse(services=services[:_MOST_SERVICES])


def get_backlog(_request: Any, answers: Mapping[str, Any]) -> limits_pb2.GetBacklogResponse:
    """Return the lambdas of all cells."""
    rows = [row for answer in answers.values() for row in answer.lambdas]
    return limits_pb2.GetBacklogResponse(lambdas=sorted(rows, key=_lambda_of))


def get_activity(_request: Any, answers: Mapping[str, Any]) -> inspection_pb2.GetActivityResponse:
    """Return the sums. Of lateness: the mean of the medians by starts, and the largest p99, for nothing else is known."""
    found = answers.values()
    total = inspection_pb2.GetActivityResponse(
        scheduled=sum(each.scheduled for each in found),
        ended=sum(each.ended for each in found),
        starts=sum(each.starts for each in found),
    )
    oldest(found, "at", total)
    _set_lateness(total, found, "starts", "p99_lateness")
    return total


def get_trends(_request: Any, answers: Mapping[str, Any]) -> inspection_pb2.GetTrendsResponse:
    """Return the sums by minute or hour, and the marks of all cells."""
    found = [*answers.values()]
    total = inspection_pb2.GetTrendsResponse(
        step=found[0].step, on_time_within=found[0].on_time_within, objective=found[0].objective
    )
    oldest(found, "at", total)
    points = defaultdict(list)
    for answer in found:
        for point in answer.points:
            points[instant(point.at)].append(point)
    total.points.extend(_point(points[at]) for at in sorted(points))
    marks = sorted((mark for answer in found for mark in answer.marks), key=lambda mark: instant(mark.at))
    total.marks.extend(marks[-_MOST_MARKS:])
    return total


def _point(points: Sequence[Any]) -> inspection_pb2.TrendPoint:
    total = inspection_pb2.TrendPoint(at=points[0].at, measured=any(each.measured for each in points))
    for field in (
        "scheduled",
        "started",
        "started_on_time",
        "ended",
        "dead",
        "failed_runs",
        "ready",
        "held",
    ):
        setattr(total, field, sum(getattr(each, field) for each in points))
    # hosts report to each cell: the sum would count their slots once for each
    total.slots = max(each.slots for each in points)
    _set_lateness(total, points, "started", "p95_lateness")
    waits = [to_timedelta(each.oldest_ready) for each in points if each.HasField("oldest_ready")]
    if waits:
        total.oldest_ready.CopyFrom(to_duration(max(waits)))
    return total


def _set_lateness(total: Any, parts: Iterable[Any], count: str, percentile: str) -> None:
    """Set the median and the percentile, of which the parts have only their own."""
    known = [each for each in parts if each.HasField("median_lateness")]
    if not known:
        return
    weights = [max(1, getattr(each, count)) for each in known]
    medians = [
        to_timedelta(each.median_lateness) * weight for each, weight in zip(known, weights, strict=True)
    ]
    total.median_lateness.CopyFrom(to_duration(sum(medians[1:], medians[0]) / sum(weights)))
    getattr(total, percentile).CopyFrom(
        to_duration(max(to_timedelta(getattr(each, percentile)) for each in known))
    )


def search(request: Any, answers: Mapping[str, Any]) -> inspection_pb2.SearchResponse:
    """Return the best hits of each kind, as many as one cell would answer with."""
    limit = request.limit or _DEFAULT_HITS
    more = {kind for answer in answers.values() for kind in answer.more}
    kinds = defaultdict(list)
    for answer in answers.values():
        for place, hit in enumerate(answer.hits):
            kinds[hit.kind].append((_rank(hit, place), hit))
    response = inspection_pb2.SearchResponse()
    for kind in sorted(kinds):
        hits: dict[tuple[str, str, str], Any] = {}
        for _, hit in sorted(kinds[kind], key=lambda ranked: ranked[0]):
            key = (hit.id, getattr(hit, "lambda"), hit.namespace)
            if key not in hits:
                hits[key] = deepcopy(hit)
            elif kind == inspection_pb2.SEARCH_KIND_CAUSE:
                hits[key].tasks += hit.tasks
        response.hits.extend([*hits.values()][:limit])
        if len(hits) > limit:
            more.add(kind)
    response.more.extend(sorted(more))
    return response


def _rank(hit: Any, place: int) -> tuple[Any, ...]:
    """Return the order of hits of one kind: as each cell has them; tasks, graphs and hosts: the newest first."""
    if hit.HasField("at"):
        seconds, nanos = instant(hit.at)
        return (hit.is_marked and hit.kind == inspection_pb2.SEARCH_KIND_HOST, -seconds, -nanos, hit.id)
    return (place, hit.id)


def list_problems(_request: Any, answers: Mapping[str, Any]) -> problems_pb2.ListProblemsResponse:
    """Return the problems of all cells, the worst first. One that several cells have is one row: of hosts, services, gates for all."""
    board = problems_pb2.ListProblemsResponse()
    found = answers.values()
    # a cell that is away has the time of its last board, and no age
    oldest([each for each in found if each.HasField("age")] or found, "as_of", board)
    board.is_stale = any(each.is_stale for each in found)
    if ages := [to_timedelta(each.age) for each in found if each.HasField("age")]:
        board.age.CopyFrom(to_duration(max(ages)))
    board.computed_by = ", ".join(sorted({each.computed_by for each in found} - {""}))
    took = [to_timedelta(each.took) for each in found if each.HasField("took")]
    if took:
        board.took.CopyFrom(to_duration(max(took)))
    rows = defaultdict(list)
    are_all_away = all(any(each.kind == _AWAY for each in answer.problems) for answer in found)
    for cell, answer in answers.items():
        for problem in answer.problems:
            if problem.kind == _AWAY and not are_all_away:
                away = _cell_away(problem, cell)
                rows[away.fingerprint].append(away)
            elif problem.kind == _CELL_AWAY:
                told = deepcopy(problem)
                told.cells[:] = [problem.subject]
                rows[told.fingerprint].append(told)
            elif problem.kind in _OF_A_STORE:
                rows[f"{problem.fingerprint} {cell}"].append(_of_cell(problem, cell))
            else:
                rows[problem.fingerprint].append(problem)
    problems = sorted((_problem(group) for group in rows.values()), key=_badness)
    joined = sum(_is_wrong(each) for answer in found for each in answer.problems) - sum(
        map(_is_wrong, problems)
    )
    board.problems.extend(problems[:_MOST_PROBLEMS])
    board.problem_count = sum(each.problem_count for each in found) - joined
    board.left_out = sum(each.left_out for each in found) + max(0, len(problems) - _MOST_PROBLEMS)
    statuses = {each.status for each in found}
    for status in (
        problems_pb2.PROBLEM_STATUS_PROBLEMS,
        problems_pb2.PROBLEM_STATUS_UNKNOWN,
        problems_pb2.PROBLEM_STATUS_HEALTHY,
    ):
        if status in statuses:
            board.status = status
            break
    return board


def note_cells(_request: Any, board: Any, answers: Mapping[str, Any], cells: Collection[str]) -> None:
    """Say how each cell stands: one whose store does not answer, or that did not answer itself, is away."""
    for name in sorted(cells):
        answer = answers.get(name)
        if answer is None:
            board.cells.add(name=name)
            continue
        is_away = any(each.kind == _AWAY for each in answer.problems)
        of_others = sum(each.kind == _CELL_AWAY and each.subject != name for each in answer.problems)
        board.cells.add(
            name=name,
            is_answering=not is_away,
            problem_count=max(0, answer.problem_count - of_others),
            age=answer.age if answer.HasField("age") else None,
        )


def note_away(request: Any, board: Any, directory: Directory, late: Collection[str]) -> None:
    """Add cells that do not answer as problems: the boards of others may not have found that yet.

    Args:
        request: of the caller, who may read all lambdas.
        board: as it was made of the answers of the other cells.
        directory: which namespaces live in them.
        late: cells that count as serving, and did not answer this call. They may be slow only.
    """
    if getattr(request, "lambda") or request.host or (request.kinds and _CELL_AWAY not in request.kinds):
        return
    if not board.HasField("age"):  # nobody has looked yet
        return
    now = to_datetime(board.as_of) + to_timedelta(board.age)
    told = {each.subject for each in board.problems if each.kind == _CELL_AWAY}
    for cell in sorted({each.name for each in board.cells if not each.is_answering} - told):
        found = cell_late(directory, cell, now) if cell in late else cell_away(directory, cell, now)
        away = problem_to_wire(found, now)
        away.cells[:] = [cell]
        board.problems.append(away)
        board.problem_count += 1
        board.status = problems_pb2.PROBLEM_STATUS_PROBLEMS
    board.problems.sort(key=_badness)


def _of_cell(problem: Any, cell: str) -> Any:
    own = deepcopy(problem)
    own.fingerprint = f"{problem.fingerprint}-{cell}"
    own.subject = cell
    own.text = f"cell {cell}: {problem.text}"
    return own


def _cell_away(problem: Any, cell: str) -> Any:
    """Return what the others say of a cell whose store does not answer: not all of Duly stands."""
    away = deepcopy(problem)
    away.kind = problems_pb2.PROBLEM_KIND_CELL_AWAY
    away.fingerprint = fingerprint_of(Kind.CELL_AWAY, cell)
    away.subject = cell
    away.text = f"cell {cell}: {problem.text}"
    return away


def _problem(rows: Sequence[Any]) -> Any:
    if len(rows) == 1:
        return rows[0]
    worst = deepcopy(min(rows, key=_badness))
    worst.fingerprint = min(each.fingerprint for each in rows)
    oldest(rows, "since_at", worst)
    worst.task_count = sum(each.task_count for each in rows)
    worst.at_least = any(each.at_least for each in rows)
    worst.hits = "; ".join(dict.fromkeys(each.hits for each in rows if each.hits))
    worst.lambda_count = sum(each.lambda_count for each in rows)
    worst.session_count = sum(each.session_count for each in rows)
    for field, most in (
        ("lambdas", _MOST_OF_A_PROBLEM),
        ("hosts", _MOST_OF_A_PROBLEM),
        ("tasks", _MOST_OF_A_PROBLEM),
        ("sessions", _MOST_SESSIONS),
    ):
        _unite(worst, rows, field, most)
    worst.host_count = max(len(worst.hosts), *(each.host_count for each in rows))
    worst.cells[:] = cells_of(rows)
    return worst


def _unite(worst: Any, rows: Collection[Any], field: str, most: int) -> None:
    united: list[Any] = []
    for row in rows:
        for each in getattr(row, field):
            if not any(_same(each, other) for other in united):
                united.append(each)
    del getattr(worst, field)[:]
    getattr(worst, field).extend(united[:most])


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, problems_pb2.ProblemHost):  # each cell has its own report of it
        return (one.host_id, one.name, one.service) == (other.host_id, other.name, other.service)
    return bool(one == other)


def _is_wrong(problem: Any) -> bool:
    return bool(problem.severity > problems_pb2.PROBLEM_SEVERITY_INFORMATION)


def _badness(problem: Any) -> tuple[Any, ...]:
    place = _PLACES.get(problem.kind, len(_PLACES))
    return -problem.severity, place, -problem.task_count, instant(problem.since_at), problem.fingerprint


def _lambda_of(row: Any) -> str:
    return str(getattr(row, "lambda"))
