"""Matches hosts that wait for work (ClaimWork) with tasks that become due, many of both in one statement.

A look is made when a caller waits and something may be due: a notification came, or the instant has come that the last look saw
ahead. When nothing of this happened for the poll interval, a check asks the store (due_check.py). So notifications may be
lost, and lateness does not depend on the poll interval.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from duly_core.config.live_sections import LiveStoreConsumerSettings
from duly_core.errors import (
    DulyError,
    NoConnectionError,
    OverloadedError,
    RowLockedError,
    StatementTimeoutError,
    StoreRefusedError,
)
from duly_core.fairness.cursors import TurnCursors
from duly_core.gates.cache import FixedGates, Gates
from duly_core.gates.scans import GateScans
from duly_core.lambdas.names import ALL_PRIORITIES
from duly_core.postgres.pool import Row, Step, Store, is_refused, is_repeated
from duly_core.process import failpoints
from duly_core.tasks import claims as store_claims
from duly_core.tasks.claims import Caller, Pick, Work
from duly_core.tasks.task import ClaimedTask
from duly_hsc import events
from duly_hsc.events import log
from duly_hsc.lease_timeouts import LeaseTimeouts, LeaseTimeoutsNow
from duly_hsc.work.answers import HandBack, WorkAnswers
from duly_hsc.work.caller_groups import CallerGroup, CallerGroups, Claimed, WaitingCall
from duly_hsc.work.due_check import DueCheck
from duly_hsc.work.look_turn import LookTurn
from duly_wire.enums import Priority

_MOST_WAITERS = 20_000
_APART = 10.0
"""Seconds without joined looks, after one that failed."""
_NOT_WRITTEN = (RowLockedError, StatementTimeoutError, StoreRefusedError, NoConnectionError)
Told = Callable[[Sequence[ClaimedTask]], None]
Result = TypeVar("Result")


class WorkMatcher:
    """Serves callers in the order in which they came, one look at a time for each set of lambdas."""

    def __init__(
        self,
        store: Store,
        lease_timeouts: LeaseTimeoutsNow,
        live_settings: Callable[[], LiveStoreConsumerSettings],
        *,
        concurrency: int,
        low_priority_share: Callable[[], float],
        most_bytes: int,
        claimed: Told,
        hand_back: HandBack,
        more_is_due: Callable[[Collection[str]], None] = lambda _: None,
        gates: Gates | None = None,
        joined_store: Store | None = None,
    ) -> None:
        """Make one.

        Args:
            store: where tasks are claimed.
            lease_timeouts: tells how long a claim lives without a heartbeat.
            live_settings: tells the poll interval, the batching gap, and whether triggering is exact.
            concurrency: how many looks are made at a time.
            low_priority_share: tells the part of starts that lower priorities get while better ones wait.
            most_bytes: how large an answer may be.
            claimed: told of all tasks that were claimed.
            hand_back: releases what was claimed for callers that are gone.
            more_is_due: told of lambdas of which more may be due than the callers here take.
            gates: knows what may not be claimed; None: there are none.
            joined_store: connections for looks that go with others' statements; None: there are no such looks.
        """
        self._store = store
        self._joined_store = joined_store
        self._lease_timeouts = lease_timeouts
        self._live_settings = live_settings
        self._free = concurrency
        self._most_bytes = most_bytes
        self._claimed = claimed
        self._answers = WorkAnswers(most_bytes, hand_back, self._note_handed_back)
        self._more_is_due = more_is_due
        self._gates = gates or FixedGates()
        self._gate_scans = GateScans()
        self._turn_cursors = TurnCursors()
        self._groups = CallerGroups(low_priority_share)
        self._due_check = DueCheck(store, self._open_among)
        self._checks = False
        self._knows_gates = False
        self._is_joined = False
        """Whether a look goes with another statement now: there is one connection for these."""
        self._apart_until = float("-inf")
        """Until then looks go with no other statement."""
        self._waiting = 0
        self._running: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    async def claim(
        self,
        caller: Caller,
        lambdas: frozenset[str],
        most: int,
        timeout: timedelta,
        priorities: frozenset[Priority] = ALL_PRIORITIES,
        turn: LookTurn | None = None,
    ) -> Claimed:
        """Wait until something of these lambdas and priorities is due, and claim it; no tasks after `timeout`.

        Args:
            caller: gets the tasks.
            lambdas: are waited for.
            most: tasks.
            timeout: after which the answer has none.
            priorities: are waited for.
            turn: of a call that waits in other stores, too; None: it waits here only.

        Raises:
            StoreUnavailableError: the outcome is unknown.
            OverloadedError: too many callers wait.
        """
        if self._waiting >= _MOST_WAITERS:
            raise OverloadedError("too many callers wait for work: try again later")
        loop = asyncio.get_running_loop()
        waiter = WaitingCall(caller, most, loop.time(), loop.create_future(), turn=turn)
        if self._is_closed:
            return Claimed([], timedelta())
        group = self._groups.join(lambdas, priorities)
        group.waiters.append(waiter)
        self._waiting += 1
        ending = loop.call_later(timeout.total_seconds(), self._end, waiter)
        self._plan(group)
        try:
            return await waiter.answer
        except asyncio.CancelledError:
            self._answers.take_back(waiter)
            raise
        finally:
            ending.cancel()
            if turn is not None:
                turn.give(waiter)
            self._waiting -= 1
            with suppress(ValueError):
                group.waiters.remove(waiter)
            if not group.waiters and not group.is_looking:
                self._tell_of_more(group)
                self._set_aside(group)

    def serves(self, lambdas: Collection[str]) -> bool:
        """Tell whether callers here wait for each of these lambdas; not if none is named: others may wait for more."""
        return bool(lambdas) and all(
            any(group.takes_all_of(name) and group.is_waited_in() for group in self._groups)
            for name in lambdas
        )

    def note_due(self, ahead: timedelta, lambdas: Collection[str] = ()) -> None:
        """Note that something of these lambdas (empty: of any) is due so far ahead."""
        due_at = asyncio.get_running_loop().time() + ahead.total_seconds()
        for due_times in self._groups.due_times.values():
            if lambdas:
                due_times.note_due(lambdas, due_at)
            else:
                due_times.note_any_due(due_at)
        for group in self._groups:
            if group.serves(lambdas):
                self._plan(group)

    def settings_changed(self) -> None:
        """Plan the next looks by the changed settings."""
        for group in self._groups:
            self._plan(group)

    def gates_changed(self) -> None:
        """Plan the next looks by the gates that are in force now: what one held may be due."""
        self.note_due(timedelta())

    def give_up(self, tasks: Sequence[ClaimedTask]) -> None:
        """Hand back, in the background, what was claimed and cannot be answered."""
        self._answers.give_up(tasks)

    def close(self) -> None:
        """Answer all callers, and those who come from now on, without work."""
        self._is_closed = True
        for group in self._groups:
            for waiter in group.waiters:
                self._end(waiter)

    async def finish(self) -> None:
        """Wait for the looks under way, and until what nobody got is handed back."""
        while self._running:
            await asyncio.wait(set(self._running))
        await self._answers.finish()

    def _end(self, waiter: WaitingCall) -> None:
        if waiter.in_look:
            waiter.is_over = True
        elif not waiter.answer.done():
            waiter.answer.set_result(Claimed([], timedelta()))

    def _note_handed_back(self, tasks: Sequence[ClaimedTask]) -> None:
        self.note_due(timedelta(), {task.lambda_name for task in tasks})

    def _set_aside(self, group: CallerGroup) -> None:
        self._groups.set_aside(group)
        group.due_times.forget_unused(asyncio.get_running_loop().time())

    # ---- when to look ------------------------------------------------------------------------------------

    def _plan(self, group: CallerGroup) -> None:
        """Look now, or when the first of the group's lambdas may have something."""
        if group.is_looking or self._is_closed or not group.is_waited_in():
            return
        if not group.is_open():  # all of its callers may get tasks of other stores just now
            for waiter in group.waiters:
                if waiter.turn is not None and not waiter.answer.done():
                    waiter.turn.when_open(waiter, partial(self._plan, group))
            return
        if group.timer is not None:
            group.timer.cancel()
            group.timer = None
        loop = asyncio.get_running_loop()
        lambdas = self._open_among(group)
        if not lambdas:  # a change of the gates plans anew
            return
        live_settings = self._live_settings()
        interval = live_settings.poll_interval.total_seconds()
        due_at = min(group.due_times.due_at(name, interval, exact=live_settings.exact) for name in lambdas)
        look_at = max(due_at, group.rests_until)
        if look_at > loop.time():
            group.timer = loop.call_at(look_at, self._plan, group)
        elif live_settings.exact and all(group.due_times.is_quiet(name, loop.time()) for name in lambdas):
            if not self._checks:
                self._checks = True
                self._begin(self._check())
        elif self._free:
            self._free -= 1
            group.is_looking = True
            self._begin(self._poll(group))

    def _begin(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def _open_among(self, group: CallerGroup) -> Collection[str]:
        return self._gates.now.open_among(group.lambdas, group.priorities)

    async def _check(self) -> None:
        """Only the poll interval is over: ask whether something is due, and plan again."""
        try:
            await self._due_check.run_once(tuple(self._groups), self._live_settings().poll_interval)
        except DulyError as error:  # the looks that follow tell the callers
            log.info("check of due tasks failed; looking", reason=str(error))
        except Exception:  # noqa: BLE001 (whatever it was: nobody waits for this task, and the groups must be planned)
            log.exception("check of due tasks failed unexpectedly; looking")
        finally:
            self._checks = False
        for group in (*self._groups,):
            self._plan(group)

    # ---- the look ----------------------------------------------------------------------------------------

    async def _poll(self, group: CallerGroup) -> None:
        try:
            if (look := self._prepare(group)) is not None:
                await self._run(look)
        finally:
            self._end_look(group)

    def _end_look(self, group: CallerGroup) -> None:
        self._free += 1
        group.is_looking = False
        for waiter in group.waiters:
            waiter.in_look = False
            if waiter.is_over:
                self._end(waiter)
        for waiter in (*group.waiters,):
            if waiter.turn is not None:
                waiter.turn.give(waiter)
        if not group.waiters:
            self._tell_of_more(group)
            self._set_aside(group)
        # others who serve these lambdas look for what is left; a group may also wait for its turn
        for other in (*self._groups,):
            if self._free == 1 or not other.lambdas.isdisjoint(group.lambdas):
                self._plan(other)

    def _tell_of_more(self, group: CallerGroup) -> None:
        """Report lambdas that may have more due than callers here take, so that hosts elsewhere take it."""
        now = asyncio.get_running_loop().time()
        due = {
            name
            for name in self._gates.now.open_among(group.lambdas, group.priorities)
            if group.due_times.may_have_due(name, now) and not self.serves((name,))
        }
        if due:
            self._more_is_due(due)

    def _prepare(self, group: CallerGroup, becomes_due: str | None = None) -> "_Look | None":
        """Begin a look for what is due, or becomes due just now; None: nothing is, or nobody is there to take it."""
        now = asyncio.get_running_loop().time()
        live_settings = self._live_settings()
        interval = live_settings.poll_interval.total_seconds()
        due = [
            name
            for name in sorted(self._gates.now.open_among(group.lambdas, group.priorities))
            if name == becomes_due or group.due_times.due_at(name, interval, exact=live_settings.exact) <= now
        ]
        waiters, each = group.choose(self._most_bytes)
        most = each * len(waiters)
        if not due or not most:  # another group looked, or the callers left, since this look was planned
            return None
        picks = group.fair_order.plan(due, most)
        if becomes_due and all(pick.queue.lambda_name != becomes_due for pick in picks):
            return None  # it has its turn in a later look
        for waiter in waiters:
            waiter.in_look = True
            if waiter.turn is not None:
                waiter.turn.take(waiter)
        polled = sorted({pick.queue.lambda_name for pick in picks})
        group.due_times.polling(polled, now, interval)
        return _Look(group, waiters, most, picks, now, self._lease_timeouts(), live_settings)

    async def _run(self, look: "_Look") -> None:
        try:
            if gates := await self._gates.known():
                look.picks = [pick for pick in look.picks if not gates.is_closed(pick.queue)]
            self._knows_gates = True
            async with failpoints.around("hsc.claim_work"):
                with events.poll_seconds.time():
                    work = await store_claims.claim_work(
                        self._store,
                        look.picks,
                        look.callers,
                        look.most,
                        look.timeouts.claim,
                        gates,
                        self._gate_scans,
                        within=look.live_settings.poll_interval,
                        fair=self._gates.fair,
                        cursors=self._turn_cursors,
                    )
        except Exception as error:  # noqa: BLE001 (whatever it was, the callers are told)
            self._failed(look, error)
        else:
            self._took(look, work)

    def _failed(self, look: "_Look", error: BaseException) -> None:
        look.group.due_times.unsure(look.polled, look.began_at)
        for waiter in look.waiters:
            if not waiter.answer.done():
                waiter.answer.set_exception(error)
                look.group.waiters.remove(waiter)

    def _took(self, look: "_Look", work: Work) -> None:
        group = look.group
        group.took(work.tasks, look.most, look.began_at, look.live_settings.batching_gap)
        events.claimed(work.tasks)
        events.group_size.labels("ClaimWork").observe(len(work.tasks))
        self._claimed(work.tasks)
        for waiter in self._answers.answer(look.waiters, work.tasks, look.began_at, look.timeouts):
            group.waiters.remove(waiter)
            if waiter.turn is not None:
                waiter.turn.end()
        # what it saw ahead, and which lambdas may have more due than it took
        now = asyncio.get_running_loop().time()
        if work.ahead is None:
            group.due_times.unsure({pick.queue.lambda_name for pick in look.picks}, now)
            return
        group.due_times.polled(work.ahead, now)
        group.due_times.unsure(work.unread, now)

    # ---- looks that go with others' statements -----------------------------------------------------------

    async def run_with_look(self, lambda_name: str, step: Step[Row]) -> list[Row] | None:
        """Run a statement that makes something of this lambda due, and the look that finds it, in one transaction.

        Returns:
            The statement's rows. None: no look would be made at once, or the pair was refused, and nothing is written. While
            there are gates, looks are made alone.

        Raises:
            StoreUnavailableError: the outcome is unknown.
        """
        if self._joined_store is None or (look := self._join(lambda_name)) is None:
            return None
        running = self._begin(self._run_joined(self._joined_store, look, step))
        return await asyncio.shield(running)  # claimed tasks are handed out even if the caller hung up

    async def _run_joined(self, store: Store, look: "_Look", step: Step[Row]) -> list[Row] | None:
        self._is_joined = True
        try:
            claim = store_claims.look_step(
                look.picks,
                look.callers,
                look.most,
                look.timeouts.claim,
                look.live_settings.poll_interval,
                fair=self._gates.fair,
                cursors=self._turn_cursors,
            )
            with events.poll_seconds.time():
                rows, found = await store.run_together(step, claim)
        except Exception as error:
            if not is_repeated(error):
                self._apart_until = asyncio.get_running_loop().time() + _APART
            if is_refused(error) or isinstance(error, _NOT_WRITTEN):
                # the look may be the reason: the statement runs alone, and its own error is the answer
                look.group.due_times.unsure(look.polled, look.began_at)
                return None
            self._failed(look, error)
            raise
        else:
            await self._end_joined(look, found)  # the task starts before its client is answered
            return rows
        finally:
            self._is_joined = False
            self._end_look(look.group)

    async def _end_joined(self, look: "_Look", rows: Sequence[Any]) -> None:
        try:
            work = await store_claims.found_by_look(self._store, rows, self._turn_cursors)
        except Exception as error:  # noqa: BLE001 (whatever it was, the callers are told)
            self._failed(look, error)
        else:
            self._took(look, work)

    def _join(self, lambda_name: str) -> "_Look | None":
        """Begin the look that would be made at once if something of this lambda became due now; None: none would be."""
        now = asyncio.get_running_loop().time()
        is_apart = not self._knows_gates or self._gates.now or now < self._apart_until
        is_apart = is_apart or not self._live_settings().exact
        if is_apart or self._is_joined or not self._free or self._is_closed:
            return None
        for group in self._groups:
            if group.is_looking or group.rests_until > now or not group.takes_all_of(lambda_name):
                continue
            if group.is_waited_in() and (look := self._prepare(group, lambda_name)) is not None:
                if group.timer is not None:
                    group.timer.cancel()
                    group.timer = None
                self._free -= 1
                group.is_looking = True
                return look
        return None


@dataclass(slots=True, eq=False)
class _Look:
    """A look that has begun."""

    group: CallerGroup
    waiters: Sequence[WaitingCall]
    most: int
    picks: Sequence[Pick]
    began_at: float
    """On the loop's clock."""
    timeouts: LeaseTimeouts
    live_settings: LiveStoreConsumerSettings

    @property
    def polled(self) -> list[str]:
        """The lambdas of which it sees whatever is due."""
        return sorted({pick.queue.lambda_name for pick in self.picks})

    @property
    def callers(self) -> list[Caller]:
        """Who gets what it finds, in turn."""
        return [waiter.caller for waiter in self.waiters]
