"""Wiring of the Controller process: settings, queue receiver, HSC and Frontend channels, local server."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

from duly_controller import events
from duly_controller.claimer import Claimer
from duly_controller.crash_reporter import CrashReporter
from duly_controller.deadline_guard import DeadlineGuard
from duly_controller.events import log
from duly_controller.executor_registry import AttachedExecutor, ExecutorRegistry
from duly_controller.host_reporter import HostReporter
from duly_controller.host_settings import HostSettings
from duly_controller.idle_watch import IdleWatch
from duly_controller.lambda_registration import LambdaRegistration
from duly_controller.message_acks import MessageAcks
from duly_controller.queue_poller import QueuePoller
from duly_controller.reference_buffer import ReferenceBuffer
from duly_controller.servicer import ControllerServicer
from duly_controller.settings import ControllerSettings, DrainSettings
from duly_controller.supervisor import Supervisor
from duly_controller.takeover import Takeover
from duly_controller.work_requests import WorkRequests
from duly_core.config.settings import format_duration
from duly_core.config.timing import Timing
from duly_core.errors import SettingsError
from duly_core.host.journal_folder import JournalFolder
from duly_core.live_settings.log_level_follower import LogLevelFollower
from duly_core.process.loop import repeat, wait_for
from duly_core.process.parent import default_socket
from duly_core.process.service import Serve, run_service
from duly_core.process.telemetry import TelemetrySettings, observe_call
from duly_core.queues.none import NoQueue
from duly_core.queues.port import QueueReceiver
from duly_core.queues.settings import QueueSettings
from duly_core.rpc.channel import open_channel
from duly_core.rpc.server import RpcServer
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.stubs import fleet_stub, hsc_stub, registry_stub

_CONTROLLER = "controller"
_WORKER = "worker"
_ATTACHED_LOOK = timedelta(milliseconds=50)
_LAST_REPORTS = timedelta(seconds=5)
_BEYOND_GRACE = timedelta(seconds=10)
_SHORTEST_DWELL = timedelta(seconds=5)


async def _open_receiver(settings: QueueSettings) -> QueueReceiver:
    if settings.backend == "store":
        return NoQueue()
    try:
        from duly_core.queues.sqs.receiver import SqsReceiver  # it loads boto3
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"queue.backend = {settings.backend} needs {error.name}, which is not installed: pip install 'duly[worker,sqs]'"
        ) from error
    return await SqsReceiver.open(settings)


def _settings(executor_arguments: Sequence[str], overrides: dict[str, object]) -> ControllerSettings:
    settings = ControllerSettings.load(**overrides)
    if "--debug-port" in executor_arguments and settings.executors > 1:
        raise SettingsError(
            "--debug-port is the port of one callback process: leave executors (--executors) at 1"
        )
    return settings


def build(executor_arguments: Sequence[str], **overrides: object) -> Serve:
    """Read the settings.

    `executor_arguments`: the command line of the Executors that this Controller starts and watches
    (`duly worker`); without it, it starts none. Others may attach in any case.
    """
    settings = _settings(executor_arguments, overrides)
    listen = settings.listen or default_socket()
    queue_settings = QueueSettings.load()
    has_queue = queue_settings.backend != "store"
    if has_queue:
        _check_dwell(queue_settings.visibility, settings.dwell_margin)
    executors = DrainSettings.load()
    rpc = RpcSettings.load()
    timing = Timing.load()
    telemetry = TelemetrySettings.load()

    async def serve(stop: asyncio.Event) -> None:
        # In the order in which it is taken down, from the end. Before that, while Executors drain (they
        # still need the HSC), what was taken and not handed out goes back to its queue.
        async with AsyncExitStack() as at_the_end:
            _make_socket_folder(listen)
            journals = JournalFolder.open(executors.journal_folder, settings.hsc_address)
            host_id = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
            hsc_channel = open_channel(settings.hsc_address, rpc)
            at_the_end.push_async_callback(hsc_channel.close)
            frontend_channel = open_channel(settings.frontend_address, rpc)
            at_the_end.push_async_callback(frontend_channel.close)
            receiver = await _open_receiver(queue_settings)
            at_the_end.push_async_callback(receiver.close)
            hsc = hsc_stub(hsc_channel)
            buffer = ReferenceBuffer(settings.low_priority_share, on_stale=events.stale)
            work_requests = WorkRequests(buffer)
            message_acks = MessageAcks(receiver)
            poller = QueuePoller(receiver, buffer, work_requests, settings.poll_timeout, stop)
            crash_reporter = CrashReporter(hsc, journals, timing.heartbeat_timeout, rpc.call_timeout)
            registration = LambdaRegistration(registry_stub(frontend_channel), rpc.call_timeout)

            def executor_ended(executor: AttachedExecutor) -> None:
                crash_reporter.report_crash(executor, len(attached))
                poller.serve(attached.all_lambdas())

            async def give_back() -> None:
                await message_acks.finish()
                await receiver.give_back(buffer.drain())

            attached = ExecutorRegistry(executor_ended)
            host_settings = HostSettings(
                LogLevelFollower(_WORKER if executor_arguments else _CONTROLLER, settings, telemetry)
            )
            host_reporter = HostReporter(
                host_id,
                fleet_stub(frontend_channel),
                attached,
                queue_settings.backend,
                settings.report_interval,
                rpc.call_timeout,
                host_settings.take,
                host_settings.age.now,
                take_label_queues=partial(_take_label_queues, attached, poller),
                pool=settings.pool,
                drain=stop.set,
            )
            at_the_end.push_async_callback(host_reporter.begin(stop, rpc.zone))
            servicer = ControllerServicer(
                host_id,
                attached,
                registration,
                poller,
                buffer,
                work_requests,
                Claimer(hsc, buffer, message_acks, timing, rpc.call_timeout),
                queue_settings.visibility - settings.dwell_margin,
                has_queue=has_queue,
                on_attach=host_reporter.executor_attached,
                host_settings=host_settings.to_wire,
                frontend_address=settings.frontend_address,
            )
            at_the_end.push_async_callback(give_back)
            at_the_end.push_async_callback(registration.stop)
            at_the_end.push_async_callback(servicer.finish, _LAST_REPORTS)
            server = RpcServer(listen, [servicer], rpc.for_local_socket(), observe_call)
            at_the_end.push_async_callback(server.stop)
            address = await server.start()
            await server.set_serving(serving=True)
            at_the_end.callback(attached.close)
            at_the_end.push_async_callback(crash_reporter.finish, _LAST_REPORTS)
            at_the_end.callback(
                _begin(Takeover(journals, attached, crash_reporter, timing.heartbeat_timeout), stop).cancel
            )
            # its stop never comes: Executors that drain are guarded, too, until they have ended
            guarding = repeat("deadlines", DeadlineGuard(attached).look, asyncio.Event(), asyncio.Event())
            at_the_end.callback(asyncio.ensure_future(guarding).cancel)
            at_the_end.push_async_callback(poller.stop)
            if settings.health_listen:
                health = RpcServer(settings.health_listen, [], rpc.for_health(settings.health_listen))
                await _begin_health(health, attached, 1 if executor_arguments else 0, stop, at_the_end)
            at_the_end.callback(_watch_idle(attached, settings.exit_when_idle, stop).cancel)
            log.info("controller serves", address=address, host=host_id)
            supervisor = Supervisor(
                settings.executors if executor_arguments else 0,
                executor_arguments,
                settings.executor_metrics_port,
                address,
                settings.hsc_address,
                journals.path,
                executors.drain_grace + _BEYOND_GRACE,
            )
            await _run(supervisor, stop, work_requests, poller, give_back)

    return serve


def _take_label_queues(attached: ExecutorRegistry, poller: QueuePoller, known: Sequence[str]) -> bool:
    """Serve those of these queues whose labels Executors have; whether they serve others than before."""
    changed = attached.take_label_queues(known)
    if changed:
        poller.serve(attached.all_lambdas())
    return changed


def _begin(takeover: Takeover, stop: asyncio.Event) -> asyncio.Future[None]:
    """Look for what dead workers held, off the way of the start."""
    return asyncio.ensure_future(repeat("takeover", takeover.look, stop, asyncio.Event()))


def _watch_idle(attached: ExecutorRegistry, limit: timedelta, stop: asyncio.Event) -> asyncio.Future[None]:
    """End this host after a time without a task: it drains, so a task that comes just then is run or handed back."""
    if not limit:
        return asyncio.get_running_loop().create_future()
    watch = IdleWatch(attached, limit, stop.set)
    return asyncio.ensure_future(repeat("idle watch", watch.look, stop, asyncio.Event()))


async def _run(
    supervisor: Supervisor,
    stop: asyncio.Event,
    work_requests: WorkRequests,
    poller: QueuePoller,
    give_back: Callable[[], Awaitable[None]],
) -> None:
    """Until all Executors have drained; at once when told to stop, what waits here is left to other hosts."""

    async def take_no_more() -> None:
        await stop.wait()
        work_requests.close()
        await poller.stop()
        await give_back()

    taking_no_more = asyncio.ensure_future(take_no_more())
    try:
        await supervisor.run(stop)
    finally:
        stop.set()
        await taking_no_more


def _check_dwell(visibility: timedelta, margin: timedelta) -> None:
    if visibility < margin + _SHORTEST_DWELL:
        raise SettingsError(
            f"queue.visibility ({format_duration(visibility)}) must be at least controller.dwell_margin "
            f"({format_duration(margin)}) and {format_duration(_SHORTEST_DWELL)} more, or nothing that is received "
            f"could be handed out: set queue.visibility to {format_duration(margin + _SHORTEST_DWELL)} or longer "
            "(DULY_QUEUE_VISIBILITY), or a shorter controller.dwell_margin (DULY_CONTROLLER_DWELL_MARGIN)"
        )


async def _begin_health(
    health: RpcServer,
    attached: ExecutorRegistry,
    needed: int,
    stop: asyncio.Event,
    at_the_end: AsyncExitStack,
) -> None:
    at_the_end.push_async_callback(health.stop)
    await health.start()
    ready = asyncio.ensure_future(_serve_when_attached(health, attached, needed, stop))
    at_the_end.callback(ready.cancel)


async def _serve_when_attached(
    health: RpcServer, attached: ExecutorRegistry, needed: int, stop: asyncio.Event
) -> None:
    """A host is ready once an Executor of it is."""
    while len(attached) < needed:
        if await wait_for(stop, _ATTACHED_LOOK):
            return
    await health.set_serving(serving=True)


def _make_socket_folder(listen: str) -> None:
    if listen.startswith("unix:"):
        folder = Path(listen.removeprefix("unix:")).parent
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SettingsError(
                f"the folder of {listen} cannot be made: {error.strerror}; "
                "choose another controller.listen (DULY_CONTROLLER_LISTEN, --listen)"
            ) from error


def main(**overrides: object) -> None:
    """Run a Controller until told to stop."""
    run_service(_CONTROLLER, lambda: build([], **overrides))


def run_worker(
    application: str,
    processes: int | None,
    slots: int | None,
    domains: str | None = None,
    labels: str | None = None,
    debug_port: int | None = None,
    **overrides: object,
) -> None:
    """Run a host until told to stop: a Controller on a socket of its own, and Executors for one application."""
    arguments = [application]
    given = {
        "--processes": processes,
        "--slots": slots,
        "--domains": domains,
        "--labels": labels,
        "--debug-port": debug_port,
    }
    for name, value in given.items():
        if value is not None:
            arguments += [name, str(value)]

    def build_worker() -> Serve:
        if overrides.get("listen") is None and "DULY_CONTROLLER_LISTEN" not in os.environ:
            overrides["listen"] = default_socket(f"worker-{os.getpid()}")
        return build(arguments, **overrides)

    run_service(_WORKER, build_worker)


if __name__ == "__main__":
    main()
