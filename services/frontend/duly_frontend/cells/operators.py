"""Writes what operators own into all cells: it is decided in the first of them, and the others follow."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from operator import attrgetter
from typing import Any, Protocol

import psycopg
from google.protobuf.field_mask_pb2 import FieldMask

from duly_core.access import store as store_access
from duly_core.access.copies import read_access, write_tokens
from duly_core.access.current import current_caller
from duly_core.cells.copying import grant_name
from duly_core.cells.late_changes import Thing, catch_up, note_changes
from duly_core.cells.operators_turn import TurnTakenError, turns
from duly_core.errors import DulyError, StoreUnavailableError
from duly_core.limits.changes import RESOURCE_FIELDS
from duly_core.pools.rules import POOL_FIELDS
from duly_core.postgres.pool import Store
from duly_core.process.outcomes import take_outcome
from duly_core.traffic.turns import Turns
from duly_frontend import events
from duly_frontend.access.service import read_grants
from duly_frontend.cells.cell_units import note_late, note_missing
from duly_frontend.cells.late_changes import log_brought
from duly_frontend.gates.checks import GATE_FIELDS
from duly_frontend.time_tables.calendars import CALENDAR_FIELDS
from duly_wire.v1 import gates_pb2, limits_pb2, pools_pb2, task_pb2, time_tables_pb2

PATIENCE = timedelta(seconds=2)
"""A cell that does not answer within this time counts as away: then nothing is written."""
_REMOVAL_WAITS = timedelta(milliseconds=500)
"""Most changes end within this time. A removal of access then goes on without its turn."""
_WAITING_OF_ONE = 1_000
"""Calls of one caller that wait for others of this process. Fewer are under way (`caller_calls`)."""
CHANGES = Turns("changes of operators", 1, of_one=1, waiting_of_one=_WAITING_OF_ONE)
"""A turn is a connection to each cell, outside of the pools: a process has one of these at a time."""
_REMOVALS = Turns("removals of access", 1, of_one=1, waiting_of_one=_WAITING_OF_ONE)
"""They do not wait for other changes."""
_UNKNOWN = frozenset(
    {
        task_pb2.ERROR_CODE_UNKNOWN_RESOURCE,
        task_pb2.ERROR_CODE_UNKNOWN_GATE,
        task_pb2.ERROR_CODE_UNKNOWN_POOL,
        task_pb2.ERROR_CODE_UNKNOWN_CALENDAR,
    }
)
"""What is to be removed is not there: an earlier call may have removed it in this cell only."""


class Cell(Protocol):
    """One cell, as the router sees it."""

    name: str
    is_serving: bool
    reads: Store
    """Connections that may write, too."""

    async def call(self, path: str, request: Any, context: Any) -> Any:
        """Call a method of the cell's servicers."""
        ...


class NothingWrittenError(StoreUnavailableError):
    """A cell does not answer: what operators own is the same in all cells, so nothing was written."""

    def __init__(self, cells: Sequence[str], *, may_wait: bool = False) -> None:
        names = ", ".join(cells)
        super().__init__(
            f"no cell answers ({names}): nothing was written"
            if may_wait
            else f"cell {names} does not answer: this is written to all cells at once, and nothing was written. Start its Postgres, say where "
            f"it is now (duly cells set {cells[0]} --at ADDRESS), or take a cell without namespaces out (duly cells remove {cells[0]} --is-gone)"
        )


class PartlyRevokedError(StoreUnavailableError):
    """Some cells have removed grants or tokens; others did not answer."""

    def __init__(self, written: Sequence[str], failed: Mapping[str, str], not_noted: str = "") -> None:
        told = "; ".join(f"cell {name}: {reason}" for name, reason in failed.items())
        names = ", ".join(failed)
        follows = (
            f"That it lacks this is not noted ({not_noted}): send the same call again once it answers."
            if not_noted
            else "It follows once it answers, and the same call again tells whether it has:"
        )
        until = f"{'Until' if not_noted else 'until'} then it is good in cell {names}"
        super().__init__(
            f"revoked in cell {', '.join(written)}; not in {told}. {follows} {until}"
            if written
            else f"not revoked in any cell: {told}"
        )


class PartlyWrittenError(DulyError):
    """Some cells have a change and others do not."""


class PartlyWrittenCellAwayError(StoreUnavailableError):
    """Some cells have a change; others stopped answering meanwhile."""


Things = Callable[[Any, Any], list[Thing]]
"""Returns what a cell changed, of the request and its answer: without what it refused."""
Follow = Callable[[Any, Any], Any]
"""Returns what to ask of the other cells, of a request and of the answer of the first cell; None: nothing."""


async def write(
    path: str, request: Any, cells: Sequence[Cell], context: Any, closed: Sequence[str] = ()
) -> Any:
    """Write a change to all cells, and return one answer. The same call again completes what was broken off.

    While a cell is away, a change that may wait for it (LATER) is written to the others, and comes to it when it is back. A cell
    that was away first gets what it lacks: the others copy what the first one has.

    Args:
        path: the method.
        request: of the caller.
        cells: those that are served here, the default one first; in the first that answers it is decided.
        context: of the call; its trailing metadata name the cells that get the change later.
        closed: the names of the other cells.

    Raises:
        NothingWrittenError: a cell does not answer, and the change cannot wait for it.
        PartlyRevokedError: a cell does not answer that has the grants or tokens; the others have removed them.
        PartlyWrittenError, PartlyWrittenCellAwayError: some cells have it; the message says which.
        DulyError: the first cell refuses the call; nothing was written.
    """
    answering = await _probe(cells)
    away = [*closed, *(cell.name for cell, answers in zip(cells, answering, strict=True) if not answers)]
    there = [cell for cell, answers in zip(cells, answering, strict=True) if answers]
    if path in REMOVES_ACCESS:
        stores = {cell.name: cell.reads for cell in there if len(cells) + len(closed) > 1}
        async with _REMOVALS.turn(current_caller()), turns(stores, wait=_REMOVAL_WAITS) as missed:
            return await _remove_access(path, request, there, away, context, may_cross=bool(missed))
    if not there or (away and path not in LATER):
        raise NothingWrittenError(away, may_wait=path in LATER)
    if getattr(request, "dry_run", False):
        answer = _hits(await asyncio.gather(*(cell.call(path, request, context) for cell in there)))
        if away:
            note_missing(context, away)
        return answer
    if len(cells) + len(closed) == 1:
        return await _write(path, request, there, away, context)
    async with turns_of_call({cell.name: cell.reads for cell in there}):
        return await _write(path, request, there, away, context)


@asynccontextmanager
async def turns_of_call(stores: Mapping[str, Store]) -> AsyncIterator[None]:
    """Take the turn in each of these cells, once no other call of this process has it or waits for it. Callers alternate.

    Raises:
        TurnTakenError: another process has it; nothing was written.
    """
    async with CHANGES.turn(current_caller()), turns(stores) as missed:
        _check_turns(missed)
        yield


def _check_turns(missed: Mapping[str, StoreUnavailableError]) -> None:
    """Refuse a change while another process makes one. Where the cell gives no turn for another reason, the change finds out.

    Raises:
        TurnTakenError: nothing was written.
    """
    for cell, error in missed.items():
        if isinstance(error, TurnTakenError):
            raise TurnTakenError(f"cell {cell}: {error}; nothing was written")
        events.log.warning("a change of operators goes on without a turn", cell=cell, reason=str(error))


async def _write(path: str, request: Any, there: Sequence[Cell], away: list[str], context: Any) -> Any:
    """Write a change to the cells that answer, whose turns the caller has."""
    first, *others = await caught_up(there) if path in LATER and len(there) > 1 else there
    answer = await first.call(path, request, context)
    asked = _FOLLOW.get(path, _alike)(request, answer)
    if asked is None:
        return answer

    async def follow(cell: Cell) -> Any:
        if path == CREATE_TOKEN:
            await write_tokens(cell.reads, await read_access(first.reads))
            return answer
        return await cell.call(path, asked, context)

    outcomes = await asyncio.gather(*map(follow, others), return_exceptions=True)
    followed: dict[str, Any] = {}
    failed: dict[str, DulyError] = {}
    for cell, outcome in zip(others, outcomes, strict=True):
        if isinstance(outcome, StoreUnavailableError) and path in LATER:
            away.append(cell.name)
        elif isinstance(outcome, DulyError):
            failed[cell.name] = outcome
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            followed[cell.name] = outcome
    changed: dict[str, list[Thing]] = {}
    if away:
        changed[first.name] = LATER[path](request, answer)
        changed |= {name: LATER[path](asked, outcome) for name, outcome in followed.items()}
    not_noted = await note(there, changed)
    if failed or not_noted:
        raise _partly([first.name, *followed], failed, away, not_noted, path)
    if any(changed.values()):
        note_late(context, away)
    return _together(first.name, answer, followed) if followed else answer


async def caught_up(cells: Sequence[Cell]) -> list[Cell]:
    """Bring each cell what it lacks; the caller has their turns. One that cannot take something comes last, for the first one decides."""
    done = await catch_up({cell.name: cell.reads for cell in cells}, has_turns=True)
    log_brought(done)
    return sorted(cells, key=lambda cell: cell.name in done.refused)


async def note(cells: Sequence[Cell], changed: Mapping[str, Collection[Thing]]) -> str:
    """Note what the cells that are away get later, in each cell that has it.

    Args:
        cells: some of them may have changed nothing.
        changed: what was changed, by cell.

    Returns:
        Why it could not be noted; empty: it is.
    """
    having: defaultdict[Thing, list[Cell]] = defaultdict(list)
    for cell in cells:
        for thing in dict.fromkeys(changed.get(cell.name, ())):
            having[thing].append(cell)
    alike: defaultdict[tuple[str, ...], list[Thing]] = defaultdict(list)
    for thing, those in having.items():
        alike[tuple(cell.name for cell in those)].append(thing)
    try:
        for things in alike.values():
            await note_changes([cell.reads for cell in having[things[0]]], things)
    except StoreUnavailableError as error:
        return str(error)
    except (DulyError, psycopg.Error) as error:  # the change is written: say so, and not that it failed
        events.log.exception("a change is not noted for a cell that is away")
        return f"a cell refuses the note, {type(error).__name__}"
    return ""


def _partly(
    written: Sequence[str], failed: Mapping[str, DulyError], away: Sequence[str], not_noted: str, path: str
) -> PartlyWrittenError | PartlyWrittenCellAwayError:
    """Return the error of a change that some cells have: it names each cell that has it, lacks it, or gets it later."""
    said = [f"written in cell {', '.join(written)}"]
    if failed:
        said.append(f"not in {'; '.join(f'cell {name}: {error}' for name, error in failed.items())}")
    complete = _TO_COMPLETE.get(path, "The same call again completes it")
    if not_noted:
        said.append(f"and not noted for cell {', '.join(away)}: {not_noted}")
        complete += "" if path in _TO_COMPLETE else f", once cell {', '.join(away)} answers"
    elif away:
        said.append(f"cell {', '.join(away)} is away, and gets it when it is back")
    text = f"{'; '.join(said)}. {complete}"
    if all(isinstance(error, StoreUnavailableError) for error in failed.values()):
        return PartlyWrittenCellAwayError(text)
    return PartlyWrittenError(text)


async def _remove_access(
    path: str, request: Any, there: Sequence[Cell], away: Sequence[str], context: Any, *, may_cross: bool
) -> Any:
    """Remove grants or tokens from each cell that answers: a removal is safe to repeat, and must not wait for a cell that is away.

    Nor for a change of another process: if there may be one, `may_cross`, the removal is noted, so that no copy of that change stays.
    """
    failed = dict.fromkeys(away, "it does not answer")
    outcomes = await asyncio.gather(
        *(cell.call(path, request, context) for cell in there), return_exceptions=True
    )
    removed: dict[str, Any] = {}
    refusals: list[DulyError] = []
    for cell, outcome in zip(there, outcomes, strict=True):
        if isinstance(outcome, DulyError):
            failed[cell.name] = str(outcome)
            refusals += [outcome] if not isinstance(outcome, StoreUnavailableError) else []
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            removed[cell.name] = outcome
    if refusals and not removed:
        raise refusals[0]
    not_noted = ""
    if failed or may_cross:
        not_noted = await _note_removed(path, request, there, removed, may_cross=may_cross)
    if failed:
        raise PartlyRevokedError([*removed], failed, not_noted)
    if not_noted:
        raise StoreUnavailableError(
            f"revoked in cell {', '.join(removed)}, while another process changes what operators own: it may come back in one of them, for "
            f"that it is gone is not noted ({not_noted}). The same call again completes it"
        )
    (first, answer), *others = removed.items()
    return _together(first, answer, dict(others)) if others else answer


async def _note_removed(
    path: str, request: Any, there: Sequence[Cell], removed: Mapping[str, Any], *, may_cross: bool
) -> str:
    """Note what was removed; a token only where it is known, for the others have nothing to copy."""
    changed = {name: LATER[path](request, answer) for name, answer in removed.items()}
    if path == REVOKE_TOKENS:
        for cell in there:
            if cell.name in removed:
                try:
                    tokens = await store_access.list_tokens(cell.reads)
                except StoreUnavailableError as error:
                    return str(error)
                known = {("tokens", token.token_id) for token in tokens}
                changed[cell.name] = [thing for thing in changed[cell.name] if thing in known]
    not_noted = await note(there, changed)
    if not_noted or not may_cross:
        return not_noted
    # as of one moment the cells count as equal, and one of them may get it again: the next round makes them as the first one is
    return await note([cell for cell in there if cell.name in removed][:1], changed)


async def _probe(cells: Sequence[Cell]) -> list[bool]:
    return await asyncio.gather(*map(_answers, cells))


async def _answers(cell: Cell) -> bool:
    if not cell.is_serving:
        return False
    asking = asyncio.ensure_future(_ask(cell.reads))
    asking.add_done_callback(take_outcome)
    done, _ = await asyncio.wait({asking}, timeout=PATIENCE.total_seconds())
    if not done:
        asking.cancel()
        return False
    error = asking.exception()
    if error is not None and not isinstance(error, StoreUnavailableError):
        raise error
    return error is None


async def _ask(store: Store) -> None:
    async with store.connection() as connection:
        await connection.execute("select 1")


# what the other cells are asked


def _alike(request: Any, answer: Any) -> Any:
    """Ask the same, unless the first cell refused every item."""
    results = getattr(answer, "results", ())
    refused = [each for each in results if each.HasField("error") and each.error.code not in _UNKNOWN]
    return None if results and len(refused) == len(results) else request


def _gate(_request: Any, answer: Any) -> Any:
    asked = gates_pb2.PutGateRequest(gate=answer.gate, update_mask=FieldMask(paths=[*GATE_FIELDS]))
    for field in ("created_at", "parked"):
        asked.gate.ClearField(field)
    return asked


def _resources(_request: Any, answer: Any) -> Any:
    """Ask for what the first cell has now, whatever the others have: a repeated call makes them equal."""
    limits = [each.limit for each in answer.results if not each.HasField("error")]
    masks = {limit.name: FieldMask(paths=[*RESOURCE_FIELDS]) for limit in limits}
    return limits_pb2.PutResourceRequest(resources=limits, update_masks=masks) if limits else None


def _pools(_request: Any, answer: Any) -> Any:
    mask = FieldMask(paths=[*POOL_FIELDS])
    pools = [
        pools_pb2.NewPool(pool=each.pool, update_mask=mask)
        for each in answer.results
        if not each.HasField("error")
    ]
    return pools_pb2.PutPoolsRequest(pools=pools) if pools else None


def _calendars(_request: Any, answer: Any) -> Any:
    mask = FieldMask(paths=[*CALENDAR_FIELDS])
    calendars = [
        time_tables_pb2.NewCalendar(calendar=each.state.calendar, update_mask=mask)
        for each in answer.results
        if not each.HasField("error")
    ]
    return time_tables_pb2.PutCalendarsRequest(calendars=calendars) if calendars else None


CREATE_TOKEN = "/duly.v1.AccessService/CreateToken"  # noqa: S105 (the path of a method)
REVOKE_TOKENS = "/duly.v1.AccessService/RevokeTokens"
REMOVES_ACCESS = frozenset({"/duly.v1.AccessService/RemoveGrants", REVOKE_TOKENS})
"""A cell that is away does not hold these up."""


def _named(kind: str, field: str, of: str = "") -> Things:
    """Return what names the things of a request: a field of its items (their names without `of`)."""

    def things(request: Any, answer: Any) -> list[Thing]:
        return [
            (kind, attrgetter(of)(item) if of else item)
            for item, result in zip(getattr(request, field), answer.results, strict=True)
            if not result.HasField("error")
        ]

    return things


def _grants(request: Any, answer: Any) -> list[Thing]:
    if any(each.HasField("error") for each in answer.results):
        return []  # one that is refused keeps the others from being written
    grants, _ = read_grants(request.grants)
    return [("grants", grant_name(each.principal, str(each.role), each.pattern)) for each in grants]


def _settings(_request: Any, answer: Any) -> list[Thing]:
    return [] if all(each.HasField("error") for each in answer.results) else [("settings", "")]


LATER: Mapping[str, Things] = {
    "/duly.v1.AccessService/AddGrants": _grants,
    "/duly.v1.AccessService/RemoveGrants": _grants,
    CREATE_TOKEN: lambda _, answer: [("tokens", answer.token_id)],
    REVOKE_TOKENS: lambda request, _: [("tokens", token_id) for token_id in request.token_ids],
    "/duly.v1.GateService/PutGate": lambda _, answer: [("gates", answer.gate.name)],
    "/duly.v1.LimitService/PutResource": _named("resources", "resources", "name"),
    "/duly.v1.PoolService/PutPools": _named("pools", "pools", "pool.name"),
    "/duly.v1.PoolService/DeletePools": _named("pools", "names"),
    "/duly.v1.SettingsService/SetSettings": _settings,
    "/duly.v1.SettingsService/ResetSettings": _settings,
}
"""What a cell that is away gets when it is back. Not: to delete a resource or a calendar, which lambdas and time tables of that cell may name, nor
to change a calendar, which moves their ticks."""
_FOLLOW: Mapping[str, Follow] = {
    "/duly.v1.GateService/PutGate": _gate,
    "/duly.v1.LimitService/PutResource": _resources,
    "/duly.v1.PoolService/PutPools": _pools,
    "/duly.v1.TimeTableService/PutCalendars": _calendars,
}
"""Methods whose outcome the others copy. The others do the same as the first cell."""
_TO_COMPLETE: Mapping[str, str] = {
    CREATE_TOKEN: "Nobody has the token: revoke it once all cells answer (duly tokens list), and make another"
}


# one answer


def _together(first: str, answer: Any, followed: Mapping[str, Any]) -> Any:
    """Return the answer of the first cell, with what came of it in the others."""
    fields = answer.DESCRIPTOR.fields_by_name
    if "results" in fields:
        kept = [place for place, each in enumerate(answer.results) if not _is_refused(each)]
        for cell, other in followed.items():
            # what the others copy is without the items that were refused
            places = kept if len(other.results) == len(kept) else range(len(answer.results))
            for place, result in zip(places, other.results, strict=True):
                _add(answer.results[place], first, cell, result)
    for name in ("added", "removed"):
        if name in fields:
            setattr(
                answer, name, max(getattr(answer, name), *(getattr(each, name) for each in followed.values()))
            )
    if "revoked" in fields:
        revoked = {*answer.revoked}.union(*(each.revoked for each in followed.values()))
        del answer.revoked[:]
        answer.revoked.extend(sorted(revoked))
    if "changed_fields" in fields:
        _add_paths(answer, followed.values())
    return answer


def _is_refused(result: Any) -> bool:
    return bool(result.HasField("error") and result.error.code not in _UNKNOWN)


def _add(result: Any, first: str, cell: str, other: Any) -> None:
    """Add what came of an item in another cell."""
    if _is_refused(result):
        return
    if _is_refused(other):
        result.error.CopyFrom(other.error)
        result.error.message = f"done in cell {first}, and not in cell {cell}: {other.error.message}"
    elif result.HasField("error") and not other.HasField("error"):
        result.CopyFrom(other)  # it was there in this cell only, and is gone now
    elif "changed_fields" in result.DESCRIPTOR.fields_by_name:
        _add_paths(result, [other])
        if "moved_time_tables" in result.DESCRIPTOR.fields_by_name:
            result.moved_time_tables += other.moved_time_tables


def _add_paths(answer: Any, others: Any) -> None:
    paths = [
        *dict.fromkeys(
            [*answer.changed_fields.paths, *(p for each in others for p in each.changed_fields.paths)]
        )
    ]
    if paths:
        answer.changed_fields.CopyFrom(FieldMask(paths=paths))


def _hits(answers: Sequence[Any]) -> Any:
    """Return what a gate would hit in all cells."""
    total, *others = answers
    counts = {each.status: each.count for each in total.hits}
    for other in others:
        for each in other.hits:
            counts[each.status] = counts.get(each.status, 0) + each.count
        total.truncated |= other.truncated
    del total.hits[:]
    total.hits.extend(gates_pb2.GateHits(status=status, count=counts[status]) for status in sorted(counts))
    return total
