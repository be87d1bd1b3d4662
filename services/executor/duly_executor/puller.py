"""Asks the Controller for work: only as much as the slots can start soon."""

import asyncio
import itertools
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc

from duly.v1 import controller_pb2, hsc_pb2
from duly_core import failpoints
from duly_core.claim_journal import ClaimJournal
from duly_core.claim_tokens import new_prefix
from duly_core.clock import nanoseconds, since_boot_ns
from duly_core.errors import ApplicationError, SettingsError
from duly_core.loop import backoff, wait_for
from duly_core.rpc.convert import from_duration, to_duration
from duly_core.timing import Timing
from duly_executor import events
from duly_executor.crew import Crew
from duly_executor.heartbeat import Heart
from duly_executor.holdings import Holdings
from duly_executor.pace import Pace
from duly_executor.reporter import Reporter
from duly_executor.settings import ExecutorSettings

if TYPE_CHECKING:
    from duly.v1.controller_pb2_grpc import ControllerServiceAsyncStub

_ATTACH_TIMEOUT = timedelta(seconds=10)
_ANSWER_MARGIN = timedelta(seconds=10)
_MOST_A_CALL = 1_000
_LAST_WORD = timedelta(seconds=1)


class Puller:
    """Attaches, then keeps up to two NextWork calls open whenever there is room for more work."""

    def __init__(
        self,
        controller: "ControllerServiceAsyncStub",
        address: str,
        attach: controller_pb2.AttachExecutorRequest,
        holdings: Holdings,
        crew: Crew,
        heart: Heart,
        reporter: Reporter,
        journal: ClaimJournal,
        pace: Pace,
        timing: Timing,
        settings: ExecutorSettings,
    ) -> None:
        self._controller = controller
        self._address = address
        self._attach_request = attach
        self._holdings = holdings
        self._crew = crew
        self._heart = heart
        self._reporter = reporter
        self._journal = journal
        self._pace = pace
        self._timing = timing
        self._settings = settings
        self._needed_ns = nanoseconds(
            timing.heartbeat_period + timing.heartbeat_deadline + timing.scheduling_lateness
        )
        """A claim that lives shorter than this may end before its first heartbeat is acknowledged."""
        self._calls = itertools.count(1)
        self._unanswered: dict[int, bytes] = {}
        """Calls of NextWork that failed here, with their prefixes; the Controller may have answered them with claims."""
        self._asked = 0
        self._failures = 0
        self._room = asyncio.Event()

    def attempts_ended(self, count: int) -> None:
        """So many slots are free again."""
        self._pace.ended(count, asyncio.get_running_loop().time())
        self._room.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Pull until `stop`.

        Raises:
            ApplicationError: the registry refuses the application's lambdas.
            SettingsError: the HSC's lease terms are too short for this host's deadlines.
        """
        attached = False
        while not stop.is_set():
            try:
                if not attached:
                    await self._until_one_ends([self._attach()], stop)
                    attached = True
                # two calls at a time: one is being answered while the other waits
                await self._until_one_ends([self._pull_for_ever(), self._pull_for_ever()], stop)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                    raise ApplicationError(f"the registry refuses: {error.details()}") from error
                attached = attached and error.code() is not grpc.StatusCode.FAILED_PRECONDITION
                self._failures += 1
                events.not_attached(self._address, f"{error.code().name}: {error.details()}")
                await wait_for(stop, backoff(self._failures))

        await self._tell_the_rest()

    async def _tell_the_rest(self) -> None:
        """What the calls were answered that were open at the end must not wait for the end of its claims."""
        if not self._unanswered:
            return
        request = controller_pb2.NextWorkRequest(
            executor_id=self._attach_request.executor_id,
            settled=self._holdings.take_settled(),
            unanswered_calls=self._unanswered,
        )
        with suppress(grpc.aio.AioRpcError):  # then they are handed back when this process has ended
            await self._controller.NextWork(request, timeout=_LAST_WORD.total_seconds())
            self._forget_prefixes(self._unanswered)

    async def _attach(self) -> None:
        # a Controller that was started again must know what to report if this process dies
        del self._attach_request.held[:]
        self._attach_request.held.extend(self._holdings.claims())
        response = await self._controller.AttachExecutor(
            self._attach_request, timeout=_ATTACH_TIMEOUT.total_seconds(), wait_for_ready=True
        )
        events.attached(response.host_id)

    @staticmethod
    async def _until_one_ends(works: Iterable[Coroutine[object, object, None]], stop: asyncio.Event) -> None:
        """Wait for the first of these, or for `stop`; the others are cancelled."""
        running = [asyncio.ensure_future(work) for work in works]
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait([*running, stopping], return_when=asyncio.FIRST_COMPLETED)
            for work in running:
                if work.done():
                    work.result()
        finally:
            for task in (*running, stopping):
                task.cancel()
            await asyncio.gather(*running, stopping, return_exceptions=True)

    async def _pull_for_ever(self) -> None:
        while True:
            most = await self._wait_for_room()
            self._asked += most
            prefix = new_prefix()
            try:
                response = await self._next_work(most, prefix)
            finally:
                self._asked -= most
            if response.tasks:
                self._take(response)
            self._journal.forget_prefix(prefix)  # its claims are journaled one by one now

    async def _wait_for_room(self) -> int:
        while True:
            self._room.clear()
            ahead = self._pace.ahead(asyncio.get_running_loop().time())
            room = self._crew.plan_ahead(ahead).room(self._holdings.unfinished() + self._asked)
            if room:
                return min(room, _MOST_A_CALL)
            await self._room.wait()

    async def _next_work(self, most: int, prefix: bytes) -> controller_pb2.NextWorkResponse:
        settled = self._holdings.take_settled()
        request = controller_pb2.NextWorkRequest(
            executor_id=self._attach_request.executor_id,
            max_tasks=most,
            timeout=to_duration(self._settings.poll_timeout),
            settled=settled,
            call=next(self._calls),
            unanswered_calls=self._unanswered,
            token_prefix=prefix,
        )
        given_up, self._unanswered = self._unanswered, {}
        self._journal.note_prefix(prefix)
        timeout = self._settings.poll_timeout + _ANSWER_MARGIN
        try:
            response: controller_pb2.NextWorkResponse = await self._controller.NextWork(
                request, timeout=timeout.total_seconds()
            )
            if failpoints.on and response.tasks:
                await failpoints.hit("executor.take.before")
        except BaseException:
            self._holdings.settled_untold(settled)
            self._unanswered |= {**given_up, request.call: prefix}
            raise
        self._forget_prefixes(given_up)
        self._failures = 0
        return response

    def _forget_prefixes(self, unanswered: Mapping[int, bytes]) -> None:
        """The Controller hands back what these calls were answered."""
        for prefix in unanswered.values():
            self._journal.forget_prefix(prefix)

    def _take(self, response: controller_pb2.NextWorkResponse) -> None:
        terms = response.terms
        try:
            self._timing.check_against(
                from_duration(terms.claim_timeout), from_duration(terms.heartbeat_timeout)
            )
        except SettingsError:
            self._reporter.release([task.claim for task in response.tasks])
            raise
        sent = response.claim_sent_since_boot.ToNanoseconds()
        deadline = self._holdings.add(response.tasks, sent)
        if since_boot_ns() + self._needed_ns >= deadline:
            # too late to start anything under these claims: without a heartbeat in time the kernel's
            # timer would end this process with all that it runs, or others have them already
            self._give_up(response.tasks)
            return
        self._heart.rearm()
        self._crew.give(response.tasks)

    def _give_up(self, tasks: Sequence[hsc_pb2.ClaimedTask]) -> None:
        claims = [task.claim for task in tasks]
        events.claims_lost(len(claims), "a late NextWork")
        self._holdings.settle(claims)
        self._reporter.release(claims)
