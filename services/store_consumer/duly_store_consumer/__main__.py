"""Wiring of the Store Consumer process: settings, store, queue sender, loop."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from functools import partial

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
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.start import Migration
from duly_core.process.loop import repeat
from duly_core.process.service import Serve, run_service
from duly_core.process.telemetry import TelemetrySettings
from duly_core.queues.settings import QueueSettings
from duly_core.rpc.server import RpcServer
from duly_core.rpc.settings import RpcSettings
from duly_core.task_output.sweep import OutputSweep
from duly_core.upkeep.retention import Retention
from duly_core.watches.sweep import WatchSweep
from duly_store_consumer import events
from duly_store_consumer.attachment_loop import attachment_loop
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


def build(
    notifications: LocalNotifications | None = None,
    migration: Migration | None = None,
    **overrides: object,
) -> Serve:
    """Read the settings; services of one process share `notifications` and `migration`."""
    settings = StoreConsumerSettings.load(**overrides)
    store_settings = StoreSettings.load()
    queue_settings = QueueSettings.load()
    rpc_settings = RpcSettings.load()
    timing = Timing.load()
    telemetry = TelemetrySettings.load()
    migration = migration or Migration()
    sweep_attachments = attachment_loop()

    async def serve(stop: asyncio.Event) -> None:
        # serves nothing but health and reflection
        server = RpcServer(settings.listen, [], rpc_settings.for_health(settings.listen))
        address = await server.start()
        if not await migration.done(store_settings, stop, STORE_CONSUMER):
            await server.stop()
            return
        async with Store(store_settings) as store, AsyncExitStack() as at_the_end:
            consumer: Consumer | TimeoutLoop
            notifier = Notifier(store, notifications)
            time_tables = TimeTableLoop(
                store,
                lambda: consumer.poll_interval,
                lambda lambdas, tasks: notifier.due_in(timedelta(), lambdas, tasks),
            )
            gates = GateCache(store)
            has_queues = queue_settings.backend != "store"
            if not has_queues:
                consumer = TimeoutLoop(
                    store, settings, ReclaimGuard(timing), notifier, lambda: gates.breaker_lambdas
                )
                listener = Listener(
                    store_settings,
                    lambda *_: None,
                    consumer.config_changed,
                    time_tables.wake.set,
                    gates.may_have_changed,
                )
            else:
                from duly_core.queues.sqs.sender import SqsSender  # boto3 is loaded where there is a queue

                sender = await SqsSender.open(queue_settings)
                at_the_end.push_async_callback(sender.close)
                consumer = Consumer(
                    store, sender, settings, ReclaimGuard(timing), gates, lambda: gates.breaker_lambdas
                )
                gates.on_change(consumer.config_changed)
                listener = Listener(
                    store_settings,
                    consumer.note_due,
                    consumer.config_changed,
                    time_tables.wake.set,
                    gates.may_have_changed,
                )
                if notifications is not None:
                    notifications.subscribe(consumer)
            gate_loop = GateLoop(
                store, gates, lambda: consumer.lambdas, notifier.due_in, has_queues=has_queues
            )
            breaker_loop = BreakerLoop(store, gates, lambda: consumer.lambdas, notifier.due_in)
            retention = Retention(
                store,
                store_settings.retention,
                store_settings.dead_letter_retention,
                store_settings.partition_span,
                audit_retention=store_settings.audit_retention,
            )

            kept_for = EffectiveSettings(store_settings)
            log_level = LogLevelFollower("store-consumer", settings, telemetry)
            consumer.live_config.follow(lambda found: kept_for.take(found.settings))
            consumer.live_config.follow(lambda found: log_level.take(found.settings))

            async def retain() -> timedelta:
                retention.keep(kept_for.now.retention, kept_for.now.dead_letter_retention)
                done = await retention.run_once()
                events.retention_round(done)
                return _TABLE_LOCKED_PAUSE if done.locked else done.pause

            log.info(
                "store consumer polls",
                address=address,
                poll_interval=format_duration(settings.poll_interval),
                exact=settings.exact,
            )
            health = HealthFollower(
                server, [store], store_settings.unhealthy_after, consumer.unhealthy_reason
            )
            async with (
                reporting(
                    store, AS_STORE_CONSUMER, address, consumer.live_config.age.now, zone=rpc_settings.zone
                ),
                asyncio.TaskGroup() as group,
            ):
                group.create_task(health.run(stop))
                group.create_task(listener.run(stop))
                group.create_task(repeat("store consumer", consumer.run_once, stop, consumer.wake))
                group.create_task(repeat("time tables", time_tables.run_once, stop, time_tables.wake))
                group.create_task(repeat("gates", gate_loop.run_once, stop, gates.wake))
                group.create_task(repeat("turns", TurnLoop(store, gates).run_once, stop, asyncio.Event()))
                group.create_task(repeat("breakers", breaker_loop.run_once, stop, asyncio.Event()))
                group.create_task(repeat("retention", retain, stop, asyncio.Event()))
                group.create_task(sweep_attachments(store, stop))
                for name, loop in (
                    ("output sweep", OutputSweep(store)),
                    ("event address sweep", AddressSweep(store)),
                    ("watch sweep", WatchSweep(store, store_settings.watch_retention)),
                ):
                    group.create_task(repeat(name, loop.run_once, stop, asyncio.Event()))
                _watch(group, store, consumer, gates, stop)
        await server.stop()

    return serve


def _watch(
    group: asyncio.TaskGroup,
    store: Store,
    consumer: Consumer | TimeoutLoop,
    gates: GateCache,
    stop: asyncio.Event,
) -> None:
    """Start what shows people what there is."""
    backlog = BacklogWatch(store, lambda: consumer.live_config.queues, gates)

    async def store_now() -> datetime:
        await gates.known()
        return gates.store_time()

    trends = TrendLoop(store, lambda: backlog.ready, lambda: consumer.live_config.lambdas, store_now)
    rounds: dict[str, Callable[[], Awaitable[timedelta]]] = {
        "host watch": partial(watch_hosts, store),
        "backlog watch": backlog.run_once,
        "trends": trends.run_once,
        "dead letter watch": DeadLetterWatch(store).run_once,
        "session watch": partial(count_blocked, store),
    }
    for name, run_once in rounds.items():
        group.create_task(repeat(name, run_once, stop, asyncio.Event()))


def main(**overrides: object) -> None:
    """Run until told to stop."""
    run_service("store-consumer", lambda: build(None, None, **overrides))


if __name__ == "__main__":
    main()
