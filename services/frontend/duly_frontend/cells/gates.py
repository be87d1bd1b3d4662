"""Sends changes of gates to the cells whose lambdas they hold: a gate on lambdas of a namespace is in its cell, one on `*` in all cells."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from duly_core.access.current import current_caller
from duly_core.cells import store as copies
from duly_core.cells.directory import Directory
from duly_core.cells.late_changes import catch_up
from duly_core.errors import DulyError, NotInCellError, PermissionDeniedError, StoreUnavailableError
from duly_core.gates import store as store_gates
from duly_core.gates.rules import Gate
from duly_core.lambdas.patterns import EVERYTHING
from duly_core.postgres.pool import Store
from duly_core.rpc.requests.checks import check_count, check_text
from duly_core.rpc.requests.problem import Problem
from duly_frontend import events
from duly_frontend.cells import operators
from duly_frontend.cells.cell_units import CellUnavailableError, CellUnit, note_late
from duly_frontend.cells.late_changes import log_brought
from duly_frontend.gates.checks import LONGEST_NAME, MOST, check_pattern, read_named
from duly_frontend.gates.rights import may_change
from duly_wire.v1 import gates_pb2, task_pb2

PUT = "/duly.v1.GateService/PutGate"
DELETE = "/duly.v1.GateService/DeleteGates"
_PATTERN = "scope.lambda"

CallEach = Callable[
    [str, Mapping[str, Any], Any], Awaitable[tuple[Mapping[str, Any], Mapping[str, DulyError]]]
]
"""Calls cells at once; returns the answers, and the errors of cells that do not answer."""


@dataclass(frozen=True, slots=True)
class AllUnits:
    """The cells, as a call finds them."""

    directory: Directory
    units: Mapping[str, CellUnit | None]
    """By cell, the default one first. None: it is not served here."""
    unit: Callable[[str], CellUnit]
    """Returns the unit of a cell that answers, or raises CellUnavailableError."""
    anywhere: Callable[[], CellUnit]
    """Returns a unit for what is in no cell."""
    call_each: CallEach

    def of(self, pattern: str) -> list[str]:
        """Return the cells of the lambdas that a pattern covers: only `*` covers those of several namespaces."""
        return [*self.units] if pattern == EVERYTHING else [self.directory.cell_of_lambda(pattern)]


@dataclass(frozen=True, slots=True)
class _Found:
    by_name: Mapping[str, Mapping[str, Gate]]
    """The gates in force, by name and cell."""
    away: Sequence[str]
    """Cells that do not answer."""


async def put(request: gates_pb2.PutGateRequest, cells: AllUnits, context: Any) -> Any:
    """Set a gate where its lambdas live; no other cell must answer. One on all lambdas comes later to a cell that is away.

    Raises:
        Problem: the request is invalid, or another cell has a gate of this name.
        PermissionDeniedError: somebody else's gate has this name in another cell.
        StoreUnavailableError: a cell does not answer whose lambdas the gate holds, or which may have the gate to change.
        DulyError: as PutGate says.
    """
    named, name = read_named(request), request.gate.name
    if len(cells.units) == 1:
        return await cells.anywhere().call(PUT, request, context)
    found = await _find_now([name] if name else [], cells)
    there = found.by_name.get(name, {})
    if _PATTERN in named:
        pattern: str = getattr(request.gate.scope, "lambda")
        check_pattern("gate.scope.lambda", pattern)
    else:
        pattern = _pattern_of(name, there, found.away)
    concerned = cells.of(pattern)
    _check_free(name, pattern, there, concerned)
    if pattern != EVERYTHING:
        unit = cells.unit(concerned[0])
        await _check_directory(unit, cells.directory)
        return await unit.call(PUT, request, context)
    units = [unit for unit in cells.units.values() if unit is not None and unit.name not in found.away]
    answer = await operators.write(PUT, request, units, context, found.away)
    answer.gate.cells[:] = sorted(unit.name for unit in units)
    return answer


async def delete(request: gates_pb2.DeleteGatesRequest, cells: AllUnits, context: Any) -> Any:
    """Remove gates in the cells that have them.

    Raises:
        Problem: the request is invalid.
        StoreUnavailableError: no cell that answers has any of them, and another cell may; or another process changes what operators own.
    """
    check_count("names", len(request.names), MOST)
    for name in request.names:
        check_text("names", name, LONGEST_NAME)
    if len(cells.units) == 1:
        return await cells.anywhere().call(DELETE, request, context)
    found = await _find_now(sorted({*request.names}), cells)
    if not any(
        _is_of_all(there) and any(map(may_change, there.values())) for there in found.by_name.values()
    ):
        return await _delete(request, found, cells, context)
    async with operators.turns_of_call(_stores(found, cells)):
        return await _delete(request, found, cells, context)


async def _delete(request: gates_pb2.DeleteGatesRequest, found: _Found, cells: AllUnits, context: Any) -> Any:
    parts: defaultdict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(request.names):
        there = found.by_name.get(name, {})
        if there or not found.away:
            for cell in there or [cells.anywhere().name]:
                parts[cell].append(name)
    asked = {cell: gates_pb2.DeleteGatesRequest(names=names) for cell, names in parts.items()}
    answers, failed = await cells.call_each(DELETE, asked, context) if asked else ({}, {})
    if failed and not answers:
        raise next(iter(failed.values()))
    outcomes: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for cell, answer in answers.items():
        for name, result in zip(parts[cell], answer.results, strict=True):
            outcomes[name][cell] = result
    errors = {name: _unknown_while_away(name, found.away) for name in request.names if not outcomes[name]}
    for name, came in outcomes.items():
        # a gate that the caller may not see is as one that is not there
        if came and found.away and _worst(came).error.code == task_pb2.ERROR_CODE_UNKNOWN_GATE:
            errors[name] = _unknown_while_away(name, found.away)
    for cell, error in failed.items():
        for name in parts[cell]:
            done = [each for each, result in outcomes[name].items() if not result.HasField("error")]
            said = f"removed in cell {', '.join(done)}, and not everywhere: " if done else ""
            errors[name] = _away(f"{said}{error}")
    if {*request.names} == errors.keys() and not failed:
        raise CellUnavailableError(", ".join(found.away), next(iter(errors.values())).message)
    away = sorted({*found.away, *failed})
    await _note_removed(found.by_name, away, outcomes, errors, cells, context)
    if any(each.code == task_pb2.ERROR_CODE_CELL_UNAVAILABLE for each in errors.values()):
        events.items_away()
    results = [
        gates_pb2.DeleteGateResult(error=errors[name]) if name in errors else _worst(outcomes[name])
        for name in request.names
    ]
    return gates_pb2.DeleteGatesResponse(results=results)


async def _note_removed(
    by_name: Mapping[str, Mapping[str, Gate]],
    away: Sequence[str],
    outcomes: Mapping[str, Mapping[str, Any]],
    errors: dict[str, task_pb2.ItemError],
    cells: AllUnits,
    context: Any,
) -> None:
    """Note which gates on all lambdas were removed, for the cells that are away. What could not be noted is added to the errors."""
    removed = [
        name
        for name, there in by_name.items()
        if _is_of_all(there) and outcomes[name] and not _worst(outcomes[name]).HasField("error")
    ]
    if not away or not removed:
        return
    changed = {
        cell: [("gates", name) for name in removed if cell in outcomes[name]]
        for cell in dict.fromkeys(cell for name in removed for cell in outcomes[name])
    }
    units = [unit for cell in changed if (unit := cells.units[cell]) is not None]
    lacking = ", ".join(away)
    if not_noted := await operators.note(units, changed):
        for name in removed:
            done = ", ".join(outcomes[name])
            errors[name] = _away(
                f"removed in cell {done}, and not noted for cell {lacking}: {not_noted}. "
                f"The same call again completes it, once cell {lacking} answers"
            )
    else:
        note_late(context, away)


async def _check_directory(unit: CellUnit, directory: Directory) -> None:
    """Do not write to a cell that has given the namespace away: nothing there refuses gates.

    Raises:
        NotInCellError: the cell knows of a newer directory.
    """
    copy = await copies.read(unit.reads)
    if copy is not None and copy.directory.version > directory.version:
        raise NotInCellError(f"cell {unit.name} has version {copy.directory.version} of the directory")


async def _find_now(names: Sequence[str], cells: AllUnits) -> _Found:
    """Do as `_find`, once each cell that answers has what was changed while it was away: its gates on all lambdas may be old ones."""
    found = await _find(names, cells)
    if any(map(_is_of_all, found.by_name.values())):
        async with operators.CHANGES.turn(current_caller()):  # it takes turns if there is something to bring
            done = await catch_up(_stores(found, cells))
        log_brought(done)
        if done.brought:
            return await _find(names, cells)
    return found


def _stores(found: _Found, cells: AllUnits) -> dict[str, Store]:
    """Return the stores of the cells that answered."""
    return {
        cell: unit.reads for cell, unit in cells.units.items() if unit is not None and cell not in found.away
    }


async def _find(names: Sequence[str], cells: AllUnits) -> _Found:
    """Return the gates of these names, and which cells do not answer."""

    async def ask(unit: CellUnit) -> list[Gate]:
        return await store_gates.gates_in_force(unit.reads, names)

    serving = [unit for unit in cells.units.values() if unit is not None and unit.is_serving]
    asking = {unit.name: asyncio.ensure_future(ask(unit)) for unit in serving}
    by_name: defaultdict[str, dict[str, Gate]] = defaultdict(dict)
    away = [cell for cell in cells.units if cell not in asking]
    if asking:
        try:
            await asyncio.wait(asking.values(), timeout=operators.PATIENCE.total_seconds())
        finally:
            for call in asking.values():
                if not call.done():
                    call.add_done_callback(_ended)
                    call.cancel()
    for cell, call in asking.items():
        try:
            gates = call.result() if call.done() and not call.cancelled() else None
        except StoreUnavailableError:
            gates = None
        if gates is None:
            away.append(cell)
        for gate in gates or ():
            by_name[gate.name][cell] = gate
    return _Found(by_name, sorted(away))


def _pattern_of(name: str, there: Mapping[str, Gate], away: Sequence[str]) -> str:
    """Return the pattern of the gate that a request changes, but for its lambdas."""
    patterns = {gate.scope.pattern for gate in there.values()}
    if len(patterns) == 1:
        return patterns.pop()
    if not patterns and away:
        raise CellUnavailableError(
            ", ".join(away),
            f"it may have the gate {name!r}, and does not answer; a new gate names its lambdas",
        )
    if not patterns:
        check_pattern("gate.scope.lambda", "")
    _check_seen(name, there.values())
    said = " and ".join(f"{gate.scope.pattern!r} in cell {cell}" for cell, gate in there.items())
    raise Problem(
        "gate.name", f"gates of the name {name!r} hold {said}: say scope.lambda of the one to change"
    )


def _check_free(name: str, pattern: str, there: Mapping[str, Gate], concerned: Sequence[str]) -> None:
    """Refuse to set a gate in one cell while another has one of its name: a gate does not move, for no transaction has both cells."""
    is_of_all = pattern == EVERYTHING
    strangers = {
        cell: gate
        for cell, gate in there.items()
        if (gate.scope.pattern == EVERYTHING) != is_of_all or cell not in concerned
    }
    if not strangers or (not is_of_all and _is_there(there, concerned[0])):
        return
    _check_seen(name, strangers.values())
    cell, gate = next(iter(strangers.items()))
    holds = "in all cells" if gate.scope.pattern == EVERYTHING else f"in cell {cell}"
    lives = "is of all cells" if is_of_all else f"lives in cell {concerned[0]}"
    raise Problem(
        "gate.name",
        f"the gate {name!r} holds {gate.scope.pattern!r} {holds}, and {pattern!r} {lives}: use another name, or delete that gate first",
    )


def _is_there(there: Mapping[str, Gate], cell: str) -> bool:
    """Whether a cell has a gate of its own lambdas, and no other gate of this name is on all lambdas."""
    return cell in there and not _is_of_all(there)


def _is_of_all(there: Mapping[str, Gate]) -> bool:
    return any(gate.scope.pattern == EVERYTHING for gate in there.values())


def _check_seen(name: str, gates: Any) -> None:
    """Say no more of gates that somebody else set than that they are there.

    Raises:
        PermissionDeniedError: the caller may not change one of them.
    """
    if all(map(may_change, gates)):
        return
    raise PermissionDeniedError(
        f"a gate {name!r} is there that somebody else set: choose another name, or ask an operator"
    )


def _unknown_while_away(name: str, away: Sequence[str]) -> task_pb2.ItemError:
    return _away(
        f"no cell that answers has the gate {name!r}; cell {', '.join(away)} does not answer: try again"
    )


def _away(message: str) -> task_pb2.ItemError:
    return task_pb2.ItemError(code=task_pb2.ERROR_CODE_CELL_UNAVAILABLE, field="name", message=message)


def _worst(results: Mapping[str, Any]) -> Any:
    """Return what came of a name: refused before removed, removed before unknown."""
    refused = [each for each in results.values() if each.HasField("error")]
    known = [each for each in refused if each.error.code != task_pb2.ERROR_CODE_UNKNOWN_GATE]
    if known:
        return known[0]
    return gates_pb2.DeleteGateResult() if len(refused) < len(results) else refused[0]


def _ended(call: asyncio.Task[Any]) -> None:
    if not call.cancelled():
        call.exception()
