"""HscService: claims, heartbeats, results and releases, each kind group committed by itself.

Heartbeats and results never wait behind claims: each kind has connections of its own, claims are the first to be
refused when more is asked than can be written, and what nobody waits for any more is not written.
"""

from collections import Counter as Count
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from operator import attrgetter

from duly_core.config.live_sections import LiveHscSettings, LiveStoreConsumerSettings
from duly_core.errors import StoreUnavailableError
from duly_core.gates.cache import FixedGates, Gates
from duly_core.graphs import predecessors as store_graph_places
from duly_core.graphs.predecessors import GraphPlace
from duly_core.lambdas.cache import LambdaCache
from duly_core.lambdas.names import ALL_PRIORITIES
from duly_core.postgres.notifications import Notifier
from duly_core.postgres.pool import Row, Step
from duly_core.process import failpoints
from duly_core.process.clock import seconds_since_boot
from duly_core.process.telemetry import observe_call
from duly_core.results import store as store_results
from duly_core.rpc.call_streams import CallStreams
from duly_core.rpc.requests.checks import check_count, check_holder, check_prefixes
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.stubs import Context
from duly_core.tasks import claims as store_claims
from duly_core.tasks.claims import Caller
from duly_core.tasks.task import (
    Applied,
    ClaimedTask,
    HeartbeatAnswer,
    Proposal,
    ReleasedClaim,
    Result,
    TaskHeartbeat,
)
from duly_core.traffic.group_commit import GroupCommit
from duly_core.watches.presence import WatchPresence
from duly_hsc import convert, convert_ends, events
from duly_hsc.access import require_run
from duly_hsc.breaker_counts import BreakerCounts
from duly_hsc.children import Children
from duly_hsc.lease_timeouts import LeaseTimeoutsNow
from duly_hsc.result_weight import weight_of
from duly_hsc.retry_budget import RetryBudget
from duly_hsc.run_trends import RunTrends
from duly_hsc.settings import HscSettings
from duly_hsc.stores import BEATING, HscStores
from duly_hsc.work.answers import fitting, size_of
from duly_hsc.work.caller_groups import Claimed
from duly_hsc.work.look_turn import LookTurn
from duly_hsc.work.matcher import WorkMatcher
from duly_wire.enums import Priority
from duly_wire.ids import TaskId
from duly_wire.v1 import hsc_pb2, hsc_pb2_grpc

_claim = attrgetter("claim")
_OVERFLOW_GAP = timedelta(milliseconds=100)
"""Other HSCs hear no more often than this that more is due than the hosts waiting here can take."""
_CLAIM_GROUPS_WAITING = 5
"""Claims are refused long before results are, and results before heartbeats: a task that is not started yet can wait,
and a result comes again as long as its claim is kept alive."""
_BEAT_GROUPS_WAITING = 200


class HscServicer(hsc_pb2_grpc.HscServiceServicer):
    """Every write compares the claim token; every answer is per item."""

    def __init__(
        self,
        stores: HscStores,
        settings: HscSettings,
        lease_timeouts: LeaseTimeoutsNow,
        notifier: Notifier,
        live_settings: Callable[[], LiveStoreConsumerSettings] = LiveStoreConsumerSettings,
        rpc: RpcSettings | None = None,
        now: Callable[[], float] = seconds_since_boot,
        gates: Gates | None = None,
        counts: BreakerCounts | None = None,
        live_hsc: Callable[[], LiveHscSettings] | None = None,
        nobody_watches: Callable[[], bool] | None = None,
        trends: RunTrends | None = None,
    ) -> None:
        """Make one.

        Args:
            stores: pools of connections.
            settings: of this service.
            lease_timeouts: tells how long claims live.
            notifier: reports tasks that are due.
            live_settings: those of triggering.
            rpc: the limits of calls; None: the defaults.
            now: tells seconds that no clock setting moves.
            gates: knows what may not be claimed; None: there are none.
            counts: counts for breakers; None: there are none.
            live_hsc: tells the settings of `[hsc]` that hold now; None: those of `settings`.
            nobody_watches: tells whether it is certain that nobody watches what is written now; None: the store is asked now and then.
            trends: counts for the trends; None: nothing is added to them.
        """
        self._cell = stores.cell.name
        live_hsc = live_hsc or (lambda: settings)
        self._counts = counts
        self._trends = trends
        rpc = rpc or RpcSettings()
        self._gates = gates or FixedGates()
        self._stores = stores
        self._settings = settings
        self._lease_timeouts = lease_timeouts
        self._notifier = notifier
        self._budget = RetryBudget(live_hsc, now)
        self._nobody_watches = nobody_watches or WatchPresence(stores.results, now).nobody
        self._follows = ""
        """The lambda of what the end of the last lone task made due at once, as in a session; empty: it made nothing due."""
        group = settings.max_group
        self._claim = GroupCommit(
            self._claim_group,
            max_items=group,
            concurrency=settings.claim_concurrency,
            most_groups_waiting=_CLAIM_GROUPS_WAITING,
            observe=events.group_size.labels("ClaimTask").observe,
        )
        self._beat = GroupCommit(
            self._beat_group,
            max_items=group,
            concurrency=BEATING,
            most_groups_waiting=_BEAT_GROUPS_WAITING,
            observe=events.group_size.labels("Heartbeat").observe,
        )
        self._set = GroupCommit(
            self._set_group,
            max_items=group,
            weigh=weight_of,
            concurrency=settings.result_concurrency,
            observe=events.group_size.labels("SetResults").observe,
        )
        self._release = GroupCommit(self._release_group, max_items=group)
        self._children = Children(LambdaCache(stores.results), stores.results, stores.cell)
        self._most_bytes = rpc.max_message_bytes // 2
        self.streams = CallStreams(
            self,
            {"claim_work": "ClaimWork", "set_results": "SetResults"},
            hsc_pb2.WorkResponse,
            rpc.call_timeout,
            observe_call,
            rpc.max_message_bytes,
        )
        self.work = WorkMatcher(
            stores.claims,
            self._lease_timeouts,
            live_settings,
            concurrency=settings.claim_concurrency,
            low_priority_share=lambda: live_hsc().low_priority_share,
            most_bytes=self._most_bytes,
            claimed=self._count_claims,
            hand_back=self._hand_back,
            more_is_due=lambda lambdas: notifier.notify_others(timedelta(), lambdas, _OVERFLOW_GAP),
            gates=self._gates,
            joined_store=stores.joined,
        )

    async def ClaimTask(  # noqa: N802 (the wire's name)
        self, request: hsc_pb2.ClaimTaskRequest, context: Context
    ) -> hsc_pb2.ClaimTaskResponse:
        check_count("proposals", len(request.proposals), self._settings.max_items_per_call)
        check_holder("holder", request.holder)
        timeouts = self._lease_timeouts()
        proposals = convert.proposals(request.proposals)
        require_run(proposal.lambda_name for proposal in proposals)
        asked = [(proposal, request.holder, timeouts.claim) for proposal in proposals]
        tasks = await self._claim(asked, context.time_remaining())
        claimed = [task for task in tasks if task is not None]
        number = fitting(claimed, self._most_bytes)
        # if this fails, nothing is handed back: its caller asks again with the same tokens, which still hold the claims
        places = await self._places(claimed[:number])
        return convert.claimed_to_wire(
            tasks, timeouts.to_wire(), number, places, self._gates.ends, self._cell
        )

    async def ping(self) -> None:
        """Find out whether the store answers what is claimed.

        Raises:
            StoreUnavailableError: it does not.
        """
        await self._stores.claims.ping()

    async def _places(self, tasks: Sequence[ClaimedTask]) -> dict[TaskId, GraphPlace]:
        """Read what the nodes of graphs among these know of their graphs, as far as the answer has room for it."""
        nodes = [task.task_id for task in tasks if task.graph_id]
        if not nodes:
            return {}
        room = 2 * self._most_bytes - sum(map(size_of, tasks)) if self._most_bytes > 0 else None
        return await store_graph_places.graph_places(self._stores.claims, nodes, room)

    async def _claim_group(self, asked: list[tuple[Proposal, str, timedelta]]) -> list[ClaimedTask | None]:
        async with failpoints.around("hsc.claim"):
            gates = await self._gates.known()
            tasks = await store_claims.claim(
                self._stores.claims,
                [(proposal, holder) for proposal, holder, _ in asked],
                max(lease for _, _, lease in asked),  # no call is told of a longer one
                gates,
                lambda lambdas: self._notifier.due_in(timedelta(), lambdas, len(lambdas)),
            )
        events.claimed(tasks)
        self._count_claims(tasks)
        return tasks

    def _count_claims(self, tasks: Sequence[ClaimedTask | None]) -> None:
        self._budget.started(Count(task.lambda_name for task in tasks if task and task.fence == 1))
        if self._trends is not None:
            self._trends.claimed(tasks, self._gates.ends)

    async def ClaimWork(  # noqa: N802
        self, request: hsc_pb2.ClaimWorkRequest, _context: Context
    ) -> hsc_pb2.ClaimWorkResponse:
        asked = convert.work_request(request)
        require_run(asked.lambdas)
        return await self.claim_work(asked)

    async def claim_work(self, asked: convert.WorkRequest) -> hsc_pb2.ClaimWorkResponse:
        """Answer a request for work whose caller may run these lambdas.

        Raises:
            StoreUnavailableError: the outcome is unknown.
            OverloadedError: too many callers wait.
        """
        if asked.lost_prefixes and (found := await self.claim_lost(asked)).tasks:
            return await self.answer(found)
        return await self.answer(
            await self.work.claim(asked.caller, asked.lambdas, asked.most, asked.timeout, asked.priorities)
        )

    async def claim_lost(self, asked: convert.WorkRequest) -> Claimed:
        """Claim what the lost requests of a caller brought, for this one; no tasks: they brought nothing.

        Raises:
            StoreUnavailableError: the outcome is unknown.
            OverloadedError: some are not handed back.
        """
        timeouts = self._lease_timeouts()
        found = await store_claims.claim_again(
            self._stores.claims, asked.caller, asked.lost_prefixes, timeouts.claim
        )
        number = min(asked.most, fitting(found, self._most_bytes)) if found else 0
        await self._hand_back(found[number:])
        return Claimed(found[:number], timedelta(), timeouts)

    async def answer(self, claimed: Claimed) -> hsc_pb2.ClaimWorkResponse:
        """Return the answer to a caller of ClaimWork; if that fails, hand back what it has claimed.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        try:
            places = await self._places(claimed.tasks)
        except BaseException:  # the store does not answer, or the caller hung up
            # safe beside a repeat of the call: that changes the tokens, which these are handed back by
            self.work.give_up(claimed.tasks)
            raise
        timeouts = claimed.timeouts or self._lease_timeouts()
        return convert.work_to_wire(claimed, timeouts.to_wire(), places, self._gates.ends, self._cell)

    async def Work(  # type: ignore[override]  # noqa: N802  # written with `context.write`, not yielded
        self, _requests: object, context: Context
    ) -> None:
        await self.streams.serve(context)

    async def _hand_back(self, tasks: Sequence[ClaimedTask]) -> None:
        await self.release_claims([ReleasedClaim(task.task_id, task.token) for task in tasks])

    async def claim_for(
        self,
        caller: Caller,
        lambdas: frozenset[str],
        most: int,
        timeout: timedelta,
        priorities: frozenset[Priority] = ALL_PRIORITIES,
        turn: LookTurn | None = None,
    ) -> Claimed:
        """Claim as ClaimWork does, for this process itself or for what answers the caller; `turn` is that of a call for several stores.

        Raises:
            StoreUnavailableError: the outcome is unknown.
            OverloadedError: too many callers wait.
        """
        return await self.work.claim(caller, lambdas, most, timeout, priorities, turn)

    async def places(self, tasks: Sequence[ClaimedTask]) -> dict[TaskId, GraphPlace]:
        """Return where the nodes of graphs among these stand in their graphs.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        return await self._places(tasks)

    async def write(self, results: Sequence[Result], within: float) -> list[Applied]:
        """Write results of this process's own claims, together with those of others.

        Raises:
            StoreUnavailableError: the outcome is unknown.
            OverloadedError: nothing was written.
        """
        return await self._set(results, within)

    def give_up(self, tasks: Sequence[ClaimedTask]) -> None:
        """Hand these claims back, in the background."""
        self.work.give_up(tasks)

    async def Heartbeat(  # noqa: N802
        self, request: hsc_pb2.HeartbeatRequest, context: Context
    ) -> hsc_pb2.HeartbeatResponse:
        check_count("items", len(request.items), self._settings.max_items_per_call)
        timeouts = self._lease_timeouts()
        asked = [(beat, timeouts.heartbeat) for beat in convert.beats(request.items)]
        kept = await self._beat(asked, context.time_remaining())
        if HeartbeatAnswer.LOST in kept:
            self._check_lost(map(_claim, request.items), kept)
        verdicts = [convert.KEPT_TO_WIRE[each] for each in kept]
        response = hsc_pb2.HeartbeatResponse(verdicts=verdicts, terms=timeouts.to_wire())
        if HeartbeatAnswer.KILL_REQUESTED in kept:
            response.kill_task_ids.extend(
                beat.task_id
                for (beat, _), answer in zip(asked, kept, strict=True)
                if answer is HeartbeatAnswer.KILL_REQUESTED
            )
        return response

    def _check_lost(
        self, claims: Iterable[hsc_pb2.Claim], answers: Sequence[HeartbeatAnswer] | Sequence[Applied]
    ) -> None:
        """Check that no claim is called lost which another cell may hold: this HSC began before there were cells.

        Raises:
            StoreUnavailableError: one is; an HSC that knows of cells tells.
        """
        if self._cell:
            return  # the router found the cell
        for claim, answer in zip(claims, answers, strict=True):
            if claim.cell and answer in (HeartbeatAnswer.LOST, Applied.LOST):
                raise StoreUnavailableError(
                    f"the claim is of cell {claim.cell[:32]!r}, and this HSC knows no cells: restart it, or ask another"
                )

    async def _beat_group(self, asked: list[tuple[TaskHeartbeat, timedelta]]) -> list[HeartbeatAnswer]:
        async with failpoints.around("hsc.heartbeat"):
            verdicts = await store_claims.heartbeat(
                self._stores.beats,
                [beat for beat, _ in asked],
                max(lease for _, lease in asked),  # no call is told of a longer one
                self._gates.now,
            )
        events.answered(events.heartbeats, verdicts)
        return verdicts

    async def SetResults(  # noqa: N802
        self, request: hsc_pb2.SetResultsRequest, context: Context
    ) -> hsc_pb2.SetResultsResponse:
        check_count("results", len(request.results), self._settings.max_items_per_call)
        results = convert_ends.results(request.results)
        if any(message.children or message.nodes for message in request.results):
            results = await self._children.add(results, request.results)
        applied = await self._set(results, context.time_remaining())
        if Applied.LOST in applied:
            self._check_lost(map(_claim, request.results), applied)
        return hsc_pb2.SetResultsResponse(verdicts=[convert.APPLIED_TO_WIRE[each] for each in applied])

    async def _set_group(self, results: list[Result]) -> list[Applied]:
        is_one, follows = len(results) == 1, self._follows
        saw = False

        async def with_look(step: Step[Row]) -> list[Row] | None:
            nonlocal saw
            rows = await self.work.run_with_look(follows, step)
            saw = rows is not None
            return rows

        async with failpoints.around("hsc.set_results"):
            held_back = self._budget.hold_back()
            written = await store_results.set_results(
                self._stores.results,
                results,
                held_back,
                with_look if is_one and follows else None,
                self._nobody_watches,
            )
            self._budget.retried(written.retried)
        if written.due_in is not None and not (saw and written.due_lambdas == {follows}):
            self._notifier.due_in(written.due_in, written.due_lambdas)
        if is_one:
            is_due = written.due_in is not None and written.due_in <= timedelta()
            self._follows = next(iter(written.due_lambdas), "") if is_due else ""
        if self._counts is not None:
            self._counts.note(results, written.verdicts)
        if self._trends is not None:
            self._trends.ended(results, written.verdicts)
        events.results_written(results, written.verdicts)
        events.retries_written(written.retried, held_back)
        return written.verdicts

    async def Release(  # noqa: N802
        self, request: hsc_pb2.ReleaseRequest, context: Context
    ) -> hsc_pb2.ReleaseResponse:
        prefixes = request.token_prefixes
        check_prefixes("token_prefixes", prefixes)
        if not prefixes or request.claims:
            check_count("claims", len(request.claims), self._settings.max_items_per_call)
        applied = await self._release(convert_ends.releases(request), context.time_remaining())
        if Applied.LOST in applied:
            self._check_lost(request.claims, applied)
        if prefixes:
            await self.release_under(prefixes)
        return hsc_pb2.ReleaseResponse(verdicts=[convert.APPLIED_TO_WIRE[each] for each in applied])

    async def release_claims(self, claims: Sequence[ReleasedClaim]) -> None:
        """Hand back claims that nobody gets.

        Raises:
            StoreUnavailableError: the outcome is unknown.
            OverloadedError: some are not handed back.
        """
        if claims:
            await self._release(claims)

    async def release_under(self, prefixes: Sequence[bytes]) -> None:
        """Hand back what was claimed under these prefixes.

        Raises:
            StoreUnavailableError: the outcome is unknown; ask again.
            OverloadedError: some are not handed back.
        """
        found = await store_claims.claims_under(self._stores.results, prefixes)
        if found:
            await self._release([ReleasedClaim(*claim) for claim in found])

    async def _release_group(self, releases: list[ReleasedClaim]) -> list[Applied]:
        async with failpoints.around("hsc.release"):
            verdicts, due_in = await store_claims.release(self._stores.results, releases)
        if due_in is not None:
            self._notifier.due_in(due_in)
        events.answered(events.releases, verdicts)
        if self._trends is not None:
            self._trends.released(releases, verdicts)
        return verdicts
