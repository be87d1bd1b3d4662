"""One answer of those of several cells: every row once, in order, to the end; sums; what is missing."""

import bisect
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from duly_core.access.methods import NEEDS
from duly_core.errors import StoreUnavailableError
from duly_core.rpc.requests.problem import Problem
from duly_frontend.cells.merging import RULES, merge, requests
from duly_frontend.cells.places import Places
from duly_frontend.cells.routes import ROUTES, AllCells, ByField
from duly_frontend.lists import page_token
from duly_wire.v1 import (
    access_pb2,
    fleet_pb2,
    frontend_pb2,
    gates_pb2,
    graphs_pb2,
    inspection_pb2,
    limits_pb2,
    problems_pb2,
    registry_pb2,
    sessions_pb2,
    time_tables_pb2,
)

TASKS = "/duly.v1.FrontendService/ListTasks"
LAMBDAS = "/duly.v1.RegistryService/ListLambdas"
TABLES = "/duly.v1.TimeTableService/ListTimeTables"
CANCEL = "/duly.v1.FrontendService/CancelTasks"
CELLS = ("a", "b", "c")
CellPage = Callable[[str, Any], Any]
NUMBERS = st.sets(st.integers(1, 60))
"""Of rows; of several cells no two have the same."""
SIZES = st.integers(1, 7)


def _apart(drawn: Sequence[set[int]]) -> dict[str, list[int]]:
    """Return rows by cell: each row in the first cell for which it was drawn."""
    seen: set[int] = set()
    rows = {}
    for cell, numbers in zip(CELLS, drawn, strict=True):
        rows[cell] = sorted(numbers - seen)
        seen |= numbers
    return rows


def _walk(method: str, request: Any, page_of: CellPage, away: Mapping[int, set[str]] = {}) -> list[Any]:
    """Return the pages of a list to its end; `away` are the cells that do not answer, by the number of the page."""
    pages: list[Any] = []
    while not pages or request.page_token:
        assert len(pages) < 300, "the list has no end"
        asked = requests(method, request, CELLS)
        answering = (
            asked.keys() - away.get(len(pages), set()) or asked.keys()
        )  # a call without any answer is repeated
        answers = {cell: page_of(cell, asked[cell]) for cell in answering}
        pages.append(merge(method, request, answers, CELLS))
        request.page_token = pages[-1].next_page_token
    return pages


def _tasks(rows: Mapping[str, Sequence[int]], bound: int) -> CellPage:
    """Return cells that list tasks by id, newest first, and look at `bound` of them at most in one call, as with attributes."""

    def page_of(cell: str, request: Any) -> Any:
        before = page_token.read(request)
        first = 1 << 128 if before is None else UUID(bytes=before).int
        left = [number for number in reversed(rows[cell]) if number < first]
        page, rest = left[: min(request.page_size, bound)], left[min(request.page_size, bound) :]
        # odd ones do not match: an answer may have fewer rows than it read, or none
        shown = [
            frontend_pb2.ListTasksResponse().tasks.add(task_id=str(UUID(int=each)))
            for each in page
            if each % 2 == 0
        ]
        token = page_token.write(request, UUID(int=page[-1]).bytes) if rest else ""
        return frontend_pb2.ListTasksResponse(tasks=shown, next_page_token=token)

    return page_of


@given(st.tuples(NUMBERS, NUMBERS, NUMBERS), SIZES, st.integers(1, 9))
def test_pages_of_tasks_have_every_task_once_newest_first_to_the_end(drawn, size, bound):
    rows = _apart(drawn)
    request = frontend_pb2.ListTasksRequest(page_size=size, collection="x")
    pages = _walk(TASKS, request, _tasks(rows, bound))
    listed = [UUID(task.task_id).int for page in pages for task in page.tasks]
    assert listed == sorted(
        (each for numbers in rows.values() for each in numbers if each % 2 == 0), reverse=True
    )
    assert all(len(page.tasks) <= size for page in pages)


def _tables(rows: Mapping[str, Sequence[int]], most: int) -> CellPage:
    """Return cells that list by name, and of which a caller sees every third row only: pages are short (lists/restricted.py)."""

    def page_of(cell: str, request: Any) -> Any:
        after, skipped = page_token.read_place(request.page_token)
        names = [f"{number:03}" for number in rows[cell]]
        found = names[bisect.bisect_right(names, after) + skipped :]
        looked_at = found[:most]
        seen = [place for place, name in enumerate(looked_at) if int(name) % 3 == 0]
        page = time_tables_pb2.ListTimeTablesResponse()
        for place in seen[: request.page_size]:
            page.tables.add().table.name = looked_at[place]
        if len(seen) > request.page_size:
            page.next_page_token = page_token.write_place(looked_at[seen[request.page_size - 1]], 0)
        elif len(found) > most:
            page.next_page_token = (
                page_token.write_place(looked_at[seen[-1]], most - 1 - seen[-1])
                if seen
                else page_token.write_place(after, skipped + most)
            )
        return page

    return page_of


@given(st.tuples(NUMBERS, NUMBERS, NUMBERS), SIZES, st.integers(1, 9))
def test_short_pages_of_what_a_caller_may_see_lose_and_repeat_nothing(drawn, size, most):
    rows = _apart(drawn)
    pages = _walk(TABLES, time_tables_pb2.ListTimeTablesRequest(page_size=size), _tables(rows, most))
    listed = [int(state.table.name) for page in pages for state in page.tables]
    assert listed == sorted(each for numbers in rows.values() for each in numbers if each % 3 == 0)


def _lambdas(rows: Mapping[str, Sequence[str]]) -> CellPage:
    """Return cells that list lambdas in an order of their own, as databases with other collations do."""

    def page_of(cell: str, request: Any) -> Any:
        names = rows[cell]
        after = page_token.read_name(request.page_token)
        left = names[names.index(after) + 1 :] if after else names
        page = registry_pb2.ListLambdasResponse()
        for name in left[: request.page_size or len(left)]:
            getattr(page.lambdas.add(), "lambda").name = name
        if request.page_size and len(left) > request.page_size:
            page.next_page_token = page_token.write_name(left[request.page_size - 1])
        return page

    return page_of


@given(st.tuples(NUMBERS, NUMBERS, NUMBERS), SIZES, st.randoms())
def test_cells_that_sort_names_in_other_ways_still_show_every_row_once(drawn, size, random):
    rows = {cell: [f"{number}" for number in numbers] for cell, numbers in _apart(drawn).items()}
    for names in rows.values():
        random.shuffle(names)
    pages = _walk(LAMBDAS, registry_pb2.ListLambdasRequest(page_size=size), _lambdas(rows))
    listed = [getattr(row, "lambda").name for page in pages for row in page.lambdas]
    assert sorted(listed) == sorted(name for names in rows.values() for name in names)


def test_a_list_without_pages_has_all_lambdas_by_name():
    rows = {"a": ["a", "d"], "b": [f"b/{number:03}" for number in range(150)], "c": ["c"]}
    (page,) = _walk(LAMBDAS, registry_pb2.ListLambdasRequest(), _lambdas(rows))
    assert [getattr(row, "lambda").name for row in page.lambdas] == ["a", *rows["b"], "c", "d"]


@given(st.tuples(NUMBERS, NUMBERS, NUMBERS), SIZES, st.integers(0, 5), st.integers(0, 5))
def test_a_cell_that_goes_and_comes_back_costs_its_own_rows_only_and_never_the_order(drawn, size, gone, back):
    rows = _apart(drawn)
    request = frontend_pb2.ListTasksRequest(page_size=size)
    away = {number: {"b"} for number in range(gone, back)}
    pages = _walk(TASKS, request, _tasks(rows, 100), away)
    listed = [UUID(task.task_id).int for page in pages for task in page.tasks]
    assert listed == sorted(listed, reverse=True)
    assert len(set(listed)) == len(listed)
    assert {each for each in rows["a"] + rows["c"] if each % 2 == 0} <= set(listed)


def test_a_page_token_by_which_no_cell_has_more_is_answered_by_an_empty_page_and_no_cell_is_said_to_be_away() -> (
    None
):
    request = frontend_pb2.ListTasksRequest(page_token=Places({"gone": "x"}, frozenset(CELLS)).write())

    assert requests(TASKS, request, CELLS) == {}
    assert merge(TASKS, request, {}, CELLS) == frontend_pb2.ListTasksResponse()


def test_a_page_of_which_no_cell_answers_is_an_error_that_names_the_cells():
    request = frontend_pb2.ListTasksRequest(
        page_size=1, page_token=Places({"b": "x"}, frozenset({"a", "c"})).write()
    )
    with pytest.raises(StoreUnavailableError, match=r"do not answer: b$"):
        merge(TASKS, request, {}, CELLS)


def test_a_token_of_a_single_store_holds_for_every_cell():
    request = frontend_pb2.ListTasksRequest(page_token="abc")
    assert {each.page_token for each in requests(TASKS, request, CELLS).values()} == {"abc"}


@pytest.mark.parametrize(
    "token", ["cells:", "cells:x", "cells:e30=", "cells:W10=", "cells:WzEsMiwzXQ==", "cells:" + "W" * 70_000]
)
def test_a_token_that_somebody_made_up_is_refused(token):
    with pytest.raises(Problem, match="not a page token"):
        requests(TASKS, frontend_pb2.ListTasksRequest(page_token=token), CELLS)


@given(st.tuples(*[st.integers(0, 12)] * 3), st.integers(1, 5), st.sampled_from([set(), {"b"}]))
def test_a_bulk_change_keeps_its_limit_and_reaches_every_task_of_the_cells_that_answer(counts, limit, away):
    left = dict(zip(CELLS, counts, strict=True))
    request = frontend_pb2.CancelTasksRequest(limit=limit)
    for _ in range(60):
        answers = {}
        for cell, asked in requests(CANCEL, request, CELLS).items():
            if cell not in away:
                assert asked.after == (
                    "" if left[cell] == counts[CELLS.index(cell)] else f"{cell} {left[cell]}"
                )
                done = min(left[cell], asked.limit)
                left[cell] -= done
                answers[cell] = frontend_pb2.CancelTasksResponse(
                    count=done, more=left[cell] > 0, next_after=f"{cell} {left[cell]}" if left[cell] else ""
                )
                answers[cell].as_of.FromSeconds(7)
        answer = merge(CANCEL, request, answers, CELLS)
        assert answer.count <= limit
        if not answer.more:
            break
        request.after = answer.next_after
        if answer.HasField("as_of"):
            request.as_of.CopyFrom(answer.as_of)
    assert left == {cell: count if cell in away else 0 for cell, count in zip(CELLS, counts, strict=True)}


def test_the_first_call_with_attributes_says_so_in_every_cell():
    request = frontend_pb2.CancelTasksRequest(after="attributes:", attributes=[{"name": "x", "value": "1"}])
    answer = merge(CANCEL, request, {"a": frontend_pb2.CancelTasksResponse(count=1)}, CELLS)
    request.after = answer.next_after
    assert {cell: each.after for cell, each in requests(CANCEL, request, CELLS).items()} == {
        "b": "attributes:"
    }


def test_a_dry_run_counts_in_all_cells_at_once():
    request = frontend_pb2.PurgeTasksRequest(dry_run=True)
    method = "/duly.v1.FrontendService/PurgeTasks"
    assert [*requests(method, request, CELLS)] == [*CELLS]
    answers = {cell: frontend_pb2.PurgeTasksResponse(count=3) for cell in CELLS}
    assert merge(method, request, answers, CELLS).count == 9


def test_a_redrive_goes_on_in_the_next_cell_at_the_rate_of_all():
    method = "/duly.v1.FrontendService/RedriveTasks"
    request = frontend_pb2.RedriveTasksRequest(rate=2)
    first = frontend_pb2.RedriveTasksResponse(count=4)
    first.next_offset.FromSeconds(2)
    first.as_of.FromSeconds(9)
    answer = merge(method, request, {"a": first}, CELLS)
    assert answer.more
    assert answer.next_offset.seconds == 2
    request.after = answer.next_after
    request.offset.CopyFrom(answer.next_offset)
    request.as_of.CopyFrom(answer.as_of)
    ((cell, asked),) = requests(method, request, CELLS).items()
    assert (cell, asked.after, asked.offset.seconds) == ("b", "", 2)
    away = merge(method, request, {}, CELLS)
    assert (away.count, away.more, away.next_offset.seconds, away.as_of.seconds) == (0, True, 2, 9)


def _at(seconds: int) -> Timestamp:
    return Timestamp(seconds=seconds)


def test_a_host_that_serves_several_cells_is_one_row_as_it_reported_last():
    def page(reported_at: int, state: int, *names: str) -> Any:
        host = fleet_pb2.Host(
            host_id="h1", reported_at=_at(reported_at), state=state, lambda_count=len(names)
        )
        host.lambdas.extend(fleet_pb2.ServedLambda(name=name) for name in names)
        return fleet_pb2.ListHostsResponse(hosts=[host, fleet_pb2.Host(host_id=f"own {reported_at}")])

    answers = {
        "a": page(5, fleet_pb2.HOST_STATE_ALIVE, "x", "y"),
        "b": page(9, fleet_pb2.HOST_STATE_DRAINING, "y", "z"),
    }
    listed = merge("/duly.v1.FleetService/ListHosts", fleet_pb2.ListHostsRequest(), answers)
    assert [host.host_id for host in listed.hosts] == ["h1", "own 5", "own 9"]
    host = listed.hosts[0]
    assert (host.state, host.reported_at.seconds) == (fleet_pb2.HOST_STATE_DRAINING, 9)
    assert [each.name for each in host.lambdas] == ["x", "y", "z"]


def test_a_resource_of_all_cells_is_one_row_with_what_all_use_of_it():
    def page(used: int, **keys: int) -> Any:
        resource = limits_pb2.Resource(limit={"name": "db"}, used=used, parked=1, changed_at=_at(3))
        resource.keys.extend(limits_pb2.ResourceKey(key=key, used=count) for key, count in keys.items())
        return limits_pb2.ListResourcesResponse(resources=[resource])

    answers = {"a": page(2, k=2), "b": page(3, k=1, j=2)}
    (row,) = merge(
        "/duly.v1.LimitService/ListResources", limits_pb2.ListResourcesRequest(), answers
    ).resources
    assert (row.used, row.parked) == (5, 2)
    assert [(key.key, key.used) for key in row.keys] == [("j", 2), ("k", 3)]


def test_a_gate_of_all_cells_is_one_row_and_parks_in_all_of_them():
    answers = {
        "a": gates_pb2.ListGatesResponse(gates=[{"name": "deploy", "parked": 2}]),
        "b": gates_pb2.ListGatesResponse(gates=[{"name": "deploy", "parked": 3}, {"name": "all"}]),
    }
    listed = merge("/duly.v1.GateService/ListGates", gates_pb2.ListGatesRequest(), answers)
    assert [(gate.name, gate.parked) for gate in listed.gates] == [("all", 0), ("deploy", 5)]


def test_points_of_one_minute_are_added():
    def answer(started: int, late: int) -> Any:
        point = inspection_pb2.TrendPoint(at=_at(60), scheduled=1, started=started, measured=True)
        point.median_lateness.FromSeconds(late)
        point.p95_lateness.FromSeconds(2 * late)
        found = inspection_pb2.GetTrendsResponse(at=_at(100 + late), points=[point], objective=0.95)
        found.step.FromSeconds(60)
        found.marks.add(at=_at(late), text=f"gate {late} set")
        return found

    answers = {"a": answer(3, 1), "b": answer(1, 5)}
    answers["b"].points.add(at=_at(0), scheduled=7)
    total = merge("/duly.v1.InspectionService/GetTrends", inspection_pb2.GetTrendsRequest(), answers)
    assert [(point.at.seconds, point.scheduled, point.started) for point in total.points] == [
        (0, 7, 0),
        (60, 2, 4),
    ]
    assert (total.points[1].median_lateness.seconds, total.points[1].p95_lateness.seconds) == (2, 10)
    assert (total.at.seconds, total.step.seconds, total.objective) == (101, 60, 0.95)
    assert [mark.text for mark in total.marks] == ["gate 1 set", "gate 5 set"]


def test_a_search_has_as_many_hits_of_a_kind_as_it_has_of_one_cell():
    def answer(*seconds: int) -> Any:
        return inspection_pb2.SearchResponse(
            hits=[
                {"kind": inspection_pb2.SEARCH_KIND_TASK, "id": str(each), "at": _at(each)}
                for each in seconds
            ]
        )

    found = merge(
        "/duly.v1.InspectionService/Search",
        inspection_pb2.SearchRequest(text="x", limit=2),
        {"a": answer(9, 3), "b": answer(5)},
    )
    assert [hit.id for hit in found.hits] == ["9", "5"]
    assert [*found.more] == [inspection_pb2.SEARCH_KIND_TASK]


def test_the_board_has_the_worst_first_and_names_the_cell_of_a_slow_store():
    slow = problems_pb2.Problem(
        fingerprint="f",
        kind=problems_pb2.PROBLEM_KIND_STORE_SLOW,
        severity=problems_pb2.PROBLEM_SEVERITY_WARNING,
        text="Postgres is slow",
    )
    silent = problems_pb2.Problem(
        fingerprint="h",
        kind=problems_pb2.PROBLEM_KIND_SILENT_HOSTS,
        severity=problems_pb2.PROBLEM_SEVERITY_CRITICAL,
        task_count=2,
        hosts=[{"host_id": "h1"}],
        host_count=1,
        since_at=_at(8),
    )
    answers = {
        "a": problems_pb2.ListProblemsResponse(
            status=problems_pb2.PROBLEM_STATUS_PROBLEMS,
            problems=[slow, silent],
            problem_count=2,
            as_of=_at(50),
        ),
        "b": problems_pb2.ListProblemsResponse(
            status=problems_pb2.PROBLEM_STATUS_PROBLEMS,
            problems=[slow, silent],
            problem_count=2,
            as_of=_at(40),
        ),
        "c": problems_pb2.ListProblemsResponse(status=problems_pb2.PROBLEM_STATUS_HEALTHY, as_of=_at(45)),
    }
    board = merge("/duly.v1.ProblemService/ListProblems", problems_pb2.ListProblemsRequest(), answers)
    assert [(each.fingerprint, each.subject) for each in board.problems] == [
        ("h", ""),
        ("f-a", "a"),
        ("f-b", "b"),
    ]
    assert (board.problems[0].task_count, board.problems[0].host_count) == (4, 1)
    assert board.problems[1].text == "cell a: Postgres is slow"
    assert (board.status, board.problem_count, board.as_of.seconds) == (
        problems_pb2.PROBLEM_STATUS_PROBLEMS,
        3,
        40,
    )


def test_audit_events_of_all_cells_are_listed_newest_first_with_the_numbers_of_each_cell():
    rows = {"a": {3: 90, 1: 10}, "b": {7: 50, 5: 30, 2: 20}, "c": {}}

    def page_of(cell: str, request: Any) -> Any:
        before = int(request.page_token or 99)
        left = [number for number in rows[cell] if number < before]
        page = access_pb2.ListAuditEventsResponse()
        for number in left[:2]:
            page.events.add(event_id=number, at=_at(rows[cell][number]))
        page.next_page_token = str(left[1]) if len(left) > 2 else ""
        return page

    pages = _walk(
        "/duly.v1.AccessService/ListAuditEvents", access_pb2.ListAuditEventsRequest(page_size=2), page_of
    )
    assert [event.at.seconds for page in pages for event in page.events] == [90, 50, 30, 20, 10]


@pytest.mark.parametrize(
    ("method", "request_", "answer"),
    [
        ("GraphService/ListGraphs", graphs_pb2.ListGraphsRequest(), graphs_pb2.ListGraphsResponse()),
        (
            "SessionService/ListSessions",
            sessions_pb2.ListSessionsRequest(),
            sessions_pb2.ListSessionsResponse(),
        ),
        ("FleetService/ListQueues", fleet_pb2.ListQueuesRequest(), fleet_pb2.ListQueuesResponse()),
    ],
)
def test_lists_of_cells_without_rows_are_empty_and_end(method, request_, answer):
    assert merge(f"/duly.v1.{method}", request_, dict.fromkeys(CELLS, answer)) == answer


def test_every_method_that_concerns_all_cells_has_a_rule():
    of_all = {
        path
        for path, route in ROUTES.items()
        if isinstance(route, AllCells) or (isinstance(route, ByField) and route.empty_is_all)
    }
    assert of_all <= RULES.keys() <= NEEDS.keys()
