"""What a Store Consumer has of one store, and how it is connected: a sole store has one such unit, and so has each cell."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from duly_core.attachments.open_blobs import open_blobs
from duly_core.attachments.settings import AttachmentSettings
from duly_core.cells.units import Place
from duly_core.config.settings import format_duration
from duly_core.config.timing import Timing
from duly_core.event_addresses.store import AddressSweep
from duly_core.fleet.services import AS_STORE_CONSUMER, reporting
from duly_core.gates.cache import GateCache
from duly_core.live_settings.effective import EffectiveSettings
from duly_core.live_settings.log_level_follower import LogLevelFollower
from duly_core.postgres.health import HealthFollower
from duly_core.postgres.local_notifications import LocalNotifications
from duly_core.postgres.notifications import Listener, Notifier
from duly_core.postgres.pool import Store
from duly_core.postgres.rights import STORE_CONSUMER
from duly_core.postgres.start import Migration
from duly_core.process.loop import repeat
from duly_core.process.pace import Pace
from duly_core.queues.port import QueueSender
from duly_core.task_output.sweep import OutputSweep
from duly_core.upkeep.retention import Retention
from duly_core.watches.sweep import WatchSweep
from duly_store_consumer import events
from duly_store_consumer.attachment_loop import sweep_attachments
from duly_store_consumer.breaker_loop import BreakerLoop
from duly_store_consumer.consumer import Consumer
from duly_store_consumer.counting.backlog_watch import BacklogWatch
from duly_store_consumer.counting.dead_letter_watch import DeadLetterWatch
from duly_store_consumer.counting.host_watch import watch_hosts
from duly_store_consumer.counting.session_watch import count_blocked
from duly_store_consumer.counting.trend_loop import TrendLoop
from duly_store_consumer.events import log
from duly_store_consumer.gate_loop import GateLoop
from duly_store_consumer.reclaim_guard import ReclaimGuard
from duly_store_consumer.settings import StoreConsumerSettings
from duly_store_consumer.time_table_loop import TimeTableLoop
from duly_store_consumer.timeout_loop import TimeoutLoop
from duly_store_consumer.turn_loop import TurnLoop

_TABLE_LOCKED_PAUSE = timedelta(seconds=30)
_AT_LEAST = timedelta(seconds=1)
"""A round that pauses for less has more to do."""
_RETENTION_RESTS = timedelta(seconds=30)
"""A round of the retention that found less to remove than it may remove pauses at least so long."""


class Health(Protocol):
    """Takes the health of the unit."""

    async def set_serving(self, *, serving: bool) -> None:
        """Answer health checks so from now on."""
        ...


@dataclass(frozen=True, slots=True)
class Shared:
    """What all units of the process share."""

    settings: StoreConsumerSettings
    timing: Timing
    attachments: AttachmentSettings
    migration: Migration
    log_level: LogLevelFollower
    zone: str
    """Where the process is."""
    sender: QueueSender | None
    """Sends to queues; None: there are none."""


async def run_unit(
    shared: Shared,
    place: Place,
    notifications: LocalNotifications | None,
    health: Health,
    address: str,
    stop: asyncio.Event,
    pools: dict[str, Store] | None = None,
) -> None:
    """Do for one store what a Store Consumer does, until `stop`.

    Args:
        shared: what is of the process.
        place: the store.
        notifications: those of this store; None: its other services are processes of their own.
        health: told whether the store answers.
        address: where health checks are answered.
        stop: ends it.
        pools: those of the cells, by name: the unit's is there while it runs.

    Raises:
        SettingsError: the store's address, schema or rights are unusable.
    """
    settings, store_settings = shared.settings, place.store
    pace = place.pace if notifications is None else notifications.pace
    listeners = None if notifications is None else notifications.listeners
    if not await shared.migration.done(store_settings, stop, STORE_CONSUMER):
        return
    connections = (
        notifications.loops.lend(store_settings)
        if notifications is not None and pace.gives_back
        else Store(store_settings, gives_back=pace.gives_back)
    )
    async with connections as store, AsyncExitStack() as at_the_end:
        if pools is not None:
            pools[place.cell] = store
            at_the_end.callback(_forget, pools, place.cell, store)
        consumer: Consumer | TimeoutLoop
        notifier = Notifier(store, notifications)
        time_tables = TimeTableLoop(
            store,
            lambda: pace.rest(consumer.poll_interval, time_tables.wake),
            lambda lambdas, tasks: notifier.due_in(timedelta(), lambdas, tasks),
        )
        gates = GateCache(store, pace=pace)
        guard = ReclaimGuard(shared.timing)
        if shared.sender is None:
            consumer = TimeoutLoop(store, settings, guard, notifier, lambda: gates.breaker_lambdas, pace)
            listener = Listener(
                store_settings,
                lambda *_: None,
                consumer.config_changed,
                time_tables.wake.set,
                gates.may_have_changed,
                pace,
                listeners,
            )
        else:
            consumer = Consumer(store, shared.sender, settings, guard, gates, lambda: gates.breaker_lambdas)
            listener = Listener(
                store_settings,
                consumer.note_due,
                consumer.config_changed,
                time_tables.wake.set,
                gates.may_have_changed,
                pace,
                listeners,
            )
            if notifications is not None:
                at_the_end.callback(notifications.subscribe(consumer))
        gate_loop = GateLoop(
            store,
            gates,
            lambda: consumer.lambdas,
            notifier.due_in,
            has_queues=shared.sender is not None,
        )
        breaker_loop = BreakerLoop(store, gates, lambda: consumer.lambdas, notifier.due_in, pace)
        turn_loop = TurnLoop(store, gates, pace)

        def gates_changed() -> None:
            breaker_loop.wake.set()
            if shared.sender is not None:
                consumer.config_changed()

        gates.on_change(gates_changed)
        if place.leads:
            consumer.live_config.follow(lambda found: shared.log_level.take(found.settings))
        log.info(
            "store consumer polls",
            address=address,
            poll_interval=format_duration(settings.poll_interval),
            exact=settings.exact,
        )
        following = HealthFollower(
            health, [store], store_settings.unhealthy_after, consumer.unhealthy_reason, pace
        )
        async with (
            reporting(
                store,
                AS_STORE_CONSUMER,
                address,
                consumer.live_config.age.now,
                zone=shared.zone,
                seldom=pace.gives_back and not place.leads,
            ),
            asyncio.TaskGroup() as group,
        ):
            group.create_task(following.run(stop))
            group.create_task(listener.run(stop))
            group.create_task(repeat("store consumer", consumer.run_once, stop, consumer.wake))
            group.create_task(repeat("time tables", time_tables.run_once, stop, time_tables.wake))
            group.create_task(repeat("gates", gate_loop.run_once, stop, gates.wake))
            group.create_task(repeat("turns", turn_loop.run_once, stop, turn_loop.wake))
            group.create_task(repeat("breakers", breaker_loop.run_once, stop, breaker_loop.wake))
            _keep_up(group, store, consumer, shared.attachments, pace, stop)
            _watch(group, store, consumer, gates, pace, stop)


def _keep_up(
    group: asyncio.TaskGroup,
    store: Store,
    consumer: Consumer | TimeoutLoop,
    attachments: AttachmentSettings,
    pace: Pace,
    stop: asyncio.Event,
) -> None:
    """Start what removes what is no longer needed."""
    settings = store.settings
    retention = Retention(
        store,
        settings.retention,
        settings.dead_letter_retention,
        settings.partition_span,
        audit_retention=settings.audit_retention,
    )
    kept_for = EffectiveSettings(settings)
    consumer.live_config.follow(lambda found: kept_for.take(found.settings))

    async def retain() -> timedelta:
        retention.keep(kept_for.now.retention, kept_for.now.dead_letter_retention)
        done = await retention.run_once()
        events.retention_round(done)
        if done.locked:
            return _TABLE_LOCKED_PAUSE
        if done.pause < _RETENTION_RESTS or done.removed or done.dropped or done.added:
            return done.pause
        # a partition must be there before its time
        return min(pace.rest(done.pause, times=20), max(done.pause, settings.partition_span))

    group.create_task(repeat("retention", retain, stop, asyncio.Event()))
    blobs = open_blobs(attachments)
    if blobs is not None:
        group.create_task(sweep_attachments(store, blobs, attachments, stop))
    watches = WatchSweep(store, settings.watch_retention)
    for name, run_once in (
        ("output sweep", OutputSweep(store).run_once),
        ("event address sweep", AddressSweep(store).run_once),
        ("watch sweep", _seldom(watches.run_once, pace, times=10)),
    ):
        group.create_task(repeat(name, run_once, stop, asyncio.Event()))


def _watch(
    group: asyncio.TaskGroup,
    store: Store,
    consumer: Consumer | TimeoutLoop,
    gates: GateCache,
    pace: Pace,
    stop: asyncio.Event,
) -> None:
    """Start what shows people what there is."""
    backlog = BacklogWatch(store, lambda: consumer.live_config.queues, gates, pace)

    async def store_now() -> datetime:
        await gates.known()
        return gates.store_time()

    trends = TrendLoop(store, lambda: backlog.ready, lambda: consumer.live_config.lambdas, store_now)
    rounds: dict[str, Callable[[], Awaitable[timedelta]]] = {
        "host watch": _seldom(partial(watch_hosts, store), pace),
        "trends": trends.run_once,
        "dead letter watch": _seldom(DeadLetterWatch(store).run_once, pace),
        "session watch": partial(count_blocked, store),
    }
    group.create_task(repeat("backlog watch", backlog.run_once, stop, backlog.wake))
    for name, run_once in rounds.items():
        group.create_task(repeat(name, run_once, stop, asyncio.Event()))


def _seldom(
    run_once: Callable[[], Awaitable[timedelta]], pace: Pace, *, times: float = 1
) -> Callable[[], Awaitable[timedelta]]:
    """Return rounds that come less often while the store is quiet: what they show, or remove, changes with what runs."""

    async def run() -> timedelta:
        pause = await run_once()
        return pause if pause < _AT_LEAST else pace.rest(pause, times=times)

    return run


def _forget(pools: dict[str, Store], cell: str, store: Store) -> None:
    """Take out the pool of a unit that ends, if no other one has its place."""
    if pools.get(cell) is store:
        del pools[cell]
