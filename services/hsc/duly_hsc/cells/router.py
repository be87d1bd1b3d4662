"""HscService before several cells: each claim says in which of them it was made, and each lambda lives in one.

A call that concerns one cell goes straight through. One that concerns several is divided, and its answers are put together. A host
sends one call for each cell, so that a cell that is away fails its own calls only.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import structlog

from duly_core.errors import DulyError, OverloadedError, StoreUnavailableError
from duly_core.process.telemetry import observe_call
from duly_core.rpc.call_streams import CallStreams
from duly_core.rpc.requests.checks import check_count, check_holder, check_prefixes
from duly_core.rpc.requests.lease_terms import shorter
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.stubs import Context
from duly_hsc import convert
from duly_hsc.access import require_run
from duly_hsc.cells.served import ServedCell, ServedCells
from duly_hsc.cells.turns import Turns
from duly_wire.ids import TaskId
from duly_wire.v1 import hsc_pb2, hsc_pb2_grpc

log = structlog.get_logger()

Answer = TypeVar("Answer")
Verdict = TypeVar("Verdict")
_Claiming = asyncio.Task[hsc_pb2.ClaimTaskResponse]
_PATIENCE = 1.0
"""Seconds that claims of one cell wait for those of another that was well, at most."""
_MOST_REMEMBERED = 1_000


class HscRouter(hsc_pb2_grpc.HscServiceServicer):
    """Finds the cells of each call."""

    def __init__(self, cells: ServedCells, rpc: RpcSettings, most_items: int) -> None:
        """Make one; `most_items` is how many claims, heartbeats or results one call may have."""
        self._cells = cells
        self._turns = Turns(cells)
        self._most_items = most_items
        self._old_hosts: set[str] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._looks: dict[str, asyncio.Task[None]] = {}
        """By cell: whether one that is in doubt answers."""
        self.streams = CallStreams(
            self,
            {"claim_work": "ClaimWork", "set_results": "SetResults"},
            hsc_pb2.WorkResponse,
            rpc.call_timeout,
            observe_call,
            rpc.max_message_bytes,
        )

    async def Work(  # type: ignore[override]  # noqa: N802  # written with `context.write`, not yielded
        self, _requests: object, context: Context
    ) -> None:
        await self.streams.serve(context)

    # ---- claims ------------------------------------------------------------------------------------------

    async def ClaimWork(  # noqa: N802 (the wire's name)
        self, request: hsc_pb2.ClaimWorkRequest, _context: Context
    ) -> hsc_pb2.ClaimWorkResponse:
        asked = convert.work_request(request)
        require_run(asked.lambdas)
        lambdas: Mapping[str, frozenset[str]] = self._cells.split(asked.lambdas)
        if not asked.keeps_cells:
            lambdas = self._of_default_cell(asked.caller.holder, lambdas)
            if not lambdas:
                raise DulyError(_OLD_HOST)
        if len(lambdas) > 1:
            return await self._turns.claim_work(asked, lambdas)
        ((name, names),) = lambdas.items()
        cell = self._cells.the(name)
        with self._cells.naming(cell):
            return await cell.servicer.claim_work(
                asked if names is asked.lambdas else replace(asked, lambdas=names)
            )

    def _of_default_cell(
        self, holder: str, lambdas: Mapping[str, frozenset[str]]
    ) -> Mapping[str, frozenset[str]]:
        """Return what a host of a release that knows no cells may ask for."""
        default = self._cells.default
        if any(name != default for name in lambdas):
            self._tell_of_old_host(holder)
        return {name: names for name, names in lambdas.items() if name == default}

    def _tell_of_old_host(self, holder: str) -> None:
        if holder not in self._old_hosts and len(self._old_hosts) < _MOST_REMEMBERED:
            self._old_hosts.add(holder)
            log.warning(
                "host knows no cells: it gets tasks of the default cell only; upgrade it", holder=holder
            )

    async def ClaimTask(  # noqa: N802
        self, request: hsc_pb2.ClaimTaskRequest, context: Context
    ) -> hsc_pb2.ClaimTaskResponse:
        check_count("proposals", len(request.proposals), self._most_items)
        check_holder("holder", request.holder)
        proposals = convert.proposals(request.proposals)
        require_run(proposal.lambda_name for proposal in proposals)
        places: defaultdict[str, list[int]] = defaultdict(list)
        for place, proposal in enumerate(proposals):
            places[self._cells.cell_of(proposal.lambda_name)].append(place)
        answers = [hsc_pb2.ClaimAnswer(verdict=hsc_pb2.CLAIM_VERDICT_CELL_AWAY)] * len(proposals)
        if not request.keeps_cells:
            refused = [name for name in places if name != self._cells.default]
            for place in (place for name in refused for place in places.pop(name)):
                answers[place] = hsc_pb2.ClaimAnswer(verdict=hsc_pb2.CLAIM_VERDICT_NOT_CLAIMED)
            if refused:
                self._tell_of_old_host(request.holder)
            if places:  # it knows no cell that is away
                self._cells.the(self._cells.default)
        terms = hsc_pb2.LeaseTerms()
        claiming = await self._claim_in_each(request, context, places)
        for task, cell in claiming.items():
            if not task.done():
                cell.pause.hung()
                self._in_background(_heard_late(task, cell))
                continue
            if (error := task.exception()) is not None:
                self._put_off(cell, error, request)
                continue
            cell.pause.answered()
            terms = shorter(terms, task.result().terms)
            for place, answer in zip(places[cell.name], task.result().answers, strict=True):
                answers[place] = answer
        return hsc_pb2.ClaimTaskResponse(answers=answers, terms=terms)

    async def _claim_in_each(
        self, request: hsc_pb2.ClaimTaskRequest, context: Context, places: Mapping[str, Sequence[int]]
    ) -> dict[_Claiming, ServedCell]:
        """Claim in each cell that may be asked; return once all have answered, or the patience is over.

        A cell in doubt is looked at first, and asked only if it answers by the time when the others have, and while half of the
        patience is left: a claim that nobody waits for would have to run out.
        """
        divided = len(places) > 1
        certain: list[ServedCell] = []
        doubtful: list[ServedCell] = []
        for cell in filter(None, map(self._cells.get, places)):
            if divided and cell.pause.is_in_doubt and cell.name in self._looks:
                doubtful.append(cell)  # somebody looks
            elif not request.keeps_cells or cell.pause.may_try():
                (doubtful if divided and cell.pause.is_in_doubt else certain).append(cell)
        looks = [self._look_at(cell) for cell in doubtful]
        claiming = self._begin_claims(request, context, places, certain)
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + _PATIENCE
        try:
            if claiming:
                await asyncio.wait(claiming, timeout=_PATIENCE if divided else None)
            elif looks:
                await asyncio.wait(looks, timeout=_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            back = [cell for cell in doubtful if not cell.pause.is_in_doubt]
            # with less time left a claim may be made for nobody: the next call asks the cell at once
            if back and ends_at - loop.time() >= _PATIENCE / 2:
                claiming |= self._begin_claims(request, context, places, back)
                await asyncio.wait(claiming, timeout=ends_at - loop.time())
        except asyncio.CancelledError:
            for task in claiming:  # its caller asks again with the same tokens
                task.cancel()
            raise
        return claiming

    def _look_at(self, cell: ServedCell) -> "asyncio.Task[None]":
        """Find out whether a cell in doubt answers: one look at a time, for all calls."""
        look = self._looks.get(cell.name)
        if look is None:
            look = self._looks[cell.name] = asyncio.get_running_loop().create_task(_look(cell))
            look.add_done_callback(lambda _: self._looks.pop(cell.name, None))
        return look

    def _begin_claims(
        self,
        request: hsc_pb2.ClaimTaskRequest,
        context: Context,
        places: Mapping[str, Sequence[int]],
        cells: Iterable[ServedCell],
    ) -> dict[_Claiming, ServedCell]:
        """Claim in these cells."""
        claiming: dict[_Claiming, ServedCell] = {}
        for cell in cells:
            of_cell = places[cell.name]
            part = request
            if len(of_cell) < len(request.proposals):
                proposals = [request.proposals[place] for place in of_cell]
                part = hsc_pb2.ClaimTaskRequest(proposals=proposals, holder=request.holder)
            task = asyncio.get_running_loop().create_task(cell.servicer.ClaimTask(part, context))
            claiming[task] = cell
        return claiming

    def _put_off(self, cell: ServedCell, error: BaseException, request: hsc_pb2.ClaimTaskRequest) -> None:
        """Let the claims of a cell that is away be asked for later.

        Raises:
            StoreUnavailableError: the caller knows no cells, so the call fails.
        """
        if not isinstance(error, StoreUnavailableError):
            raise error
        with self._cells.naming(cell):
            if not request.keeps_cells:
                raise error
        cell.pause.failed()
        log.warning("claims put off: their cell is away", cell=cell.name, reason=str(error))

    def _in_background(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # ---- what holders say --------------------------------------------------------------------------------

    async def Heartbeat(  # noqa: N802
        self, request: hsc_pb2.HeartbeatRequest, context: Context
    ) -> hsc_pb2.HeartbeatResponse:
        places = _by_cell(item.claim for item in request.items)
        if len(places) <= 1:
            return await self._one(places, lambda cell: cell.servicer.Heartbeat(request, context))
        check_count("items", len(request.items), self._most_items)

        def part(cell: ServedCell, of_cell: Sequence[int]) -> Awaitable[hsc_pb2.HeartbeatResponse]:
            items = [request.items[place] for place in of_cell]
            return cell.servicer.Heartbeat(
                hsc_pb2.HeartbeatRequest(items=items, holder=request.holder), context
            )

        answers = await self._each(places, part)
        terms = hsc_pb2.LeaseTerms()
        for _, answer in answers:
            terms = shorter(terms, answer.terms)
        return hsc_pb2.HeartbeatResponse(
            verdicts=_in_order([(of_cell, answer.verdicts) for of_cell, answer in answers]),
            terms=terms,
            kill_task_ids=[task_id for _, answer in answers for task_id in answer.kill_task_ids],
        )

    async def SetResults(  # noqa: N802
        self, request: hsc_pb2.SetResultsRequest, context: Context
    ) -> hsc_pb2.SetResultsResponse:
        places = _by_cell(result.claim for result in request.results)
        if len(places) <= 1:
            return await self._one(places, lambda cell: cell.servicer.SetResults(request, context))
        check_count("results", len(request.results), self._most_items)

        def part(cell: ServedCell, of_cell: Sequence[int]) -> Awaitable[hsc_pb2.SetResultsResponse]:
            results = [request.results[place] for place in of_cell]
            return cell.servicer.SetResults(hsc_pb2.SetResultsRequest(results=results), context)

        answers = await self._each(places, part)
        return hsc_pb2.SetResultsResponse(
            verdicts=_in_order([(of_cell, answer.verdicts) for of_cell, answer in answers])
        )

    async def Release(  # noqa: N802
        self, request: hsc_pb2.ReleaseRequest, context: Context
    ) -> hsc_pb2.ReleaseResponse:
        check_prefixes("token_prefixes", request.token_prefixes)
        if not request.token_prefixes or request.claims:
            check_count("claims", len(request.claims), self._most_items)
        places = _by_cell(request.claims)
        stopped: defaultdict[TaskId, list[hsc_pb2.StoppedRun]] = defaultdict(list)
        for each in request.stopped:
            stopped[each.task_id].append(each)

        def part(cell: ServedCell, of_cell: Sequence[int]) -> Awaitable[hsc_pb2.ReleaseResponse]:
            claims = [request.claims[place] for place in of_cell]
            runs = [run for claim in claims for run in stopped.get(claim.task_id, ())]
            return cell.servicer.Release(hsc_pb2.ReleaseRequest(claims=claims, stopped=runs), context)

        answers = await self._each(places, part)
        if request.token_prefixes:
            await self._release_under(list(request.token_prefixes))
        return hsc_pb2.ReleaseResponse(
            verdicts=_in_order([(of_cell, answer.verdicts) for of_cell, answer in answers])
        )

    async def _release_under(self, prefixes: Sequence[bytes]) -> None:
        """Hand back what was claimed under these prefixes, in whatever cell; what a cell that is away owes, later."""
        asking = []
        for name in self._cells.names():
            cell = self._cells.get(name)
            if cell is None or not cell.pause.may_try():
                self._cells.owe(name, prefixes)
            else:
                asking.append(self._cells.hand_back(cell, prefixes))
        for error in await asyncio.gather(*asking, return_exceptions=True):
            if error is not None and not isinstance(error, StoreUnavailableError | OverloadedError):
                raise error

    async def _one(
        self, places: Mapping[str, Sequence[int]], ask: Callable[[ServedCell], Awaitable[Answer]]
    ) -> Answer:
        cell = self._cells.the(next(iter(places), ""))
        with self._cells.naming(cell):
            return await ask(cell)

    async def _each(
        self,
        places: Mapping[str, Sequence[int]],
        part: Callable[[ServedCell, Sequence[int]], Awaitable[Answer]],
    ) -> list[tuple[Sequence[int], Answer]]:
        """Ask each cell for its part; all of them have done theirs when one fails."""

        async def ask(name: str, of_cell: Sequence[int]) -> tuple[Sequence[int], Answer]:
            cell = self._cells.the(name)
            with self._cells.naming(cell):
                return of_cell, await part(cell, of_cell)

        answers = await asyncio.gather(
            *(ask(name, of_cell) for name, of_cell in places.items()), return_exceptions=True
        )
        found = []
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            found.append(answer)
        return found


_OLD_HOST = "this host is of a release that knows no cells, and none of its lambdas lives in the default cell: upgrade it"


def _by_cell(claims: Iterable[hsc_pb2.Claim]) -> dict[str, list[int]]:
    """Return the places of claims, by the cell that each names."""
    places: dict[str, list[int]] = {}
    for place, claim in enumerate(claims):
        places.setdefault(claim.cell, []).append(place)
    return places


def _in_order(answers: Sequence[tuple[Sequence[int], Iterable[Verdict]]]) -> list[Verdict]:
    """Return the verdicts of all cells in the order of the request."""
    by_place = {
        place: verdict
        for places, verdicts in answers
        for place, verdict in zip(places, verdicts, strict=True)
    }
    return [by_place[place] for place in range(len(by_place))]


async def _look(cell: ServedCell) -> None:
    try:
        await cell.servicer.ping()
    except DulyError as error:
        cell.pause.failed()
        log.warning("claims put off: their cell is away", cell=cell.name, reason=str(error))
    else:
        cell.pause.answered()


async def _heard_late(claiming: _Claiming, cell: ServedCell) -> None:
    """Note whether a cell did what its caller no longer waits for.

    Nothing is handed back: the tokens are the caller's, who may have repeated the call and runs the tasks under them. Other claims run out.
    """
    try:
        await claiming
    except DulyError as error:
        cell.pause.failed()
        log.warning("late claims failed", cell=cell.name, reason=str(error))
    else:
        cell.pause.answered()
