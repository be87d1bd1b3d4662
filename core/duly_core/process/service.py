"""How every Duly process runs: logs, loop, signals, and an exit code that says who must act."""

import asyncio
import gc
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import NoReturn

import structlog
import uvloop

from duly_core.config.section_names import misspelt_variables
from duly_core.errors import DulyError, QueueUnavailableError, StoreUnavailableError
from duly_core.process import failpoints
from duly_core.process.keepalive_pipe import PARENT_DIED, KeepalivePipe
from duly_core.process.parent import die_with_parent
from duly_core.process.ready_pipe import take_ready_pipe
from duly_core.process.telemetry import TelemetrySettings, serve_metrics, set_up_logging

log = structlog.get_logger()

EXIT_CONFIG = 78
"""EX_CONFIG: starting again will not help; somebody must change something."""

EXIT_UNAVAILABLE = 69
"""EX_UNAVAILABLE: what it needs was not there; starting again may help."""

Serve = Callable[[asyncio.Event], Awaitable[None]]


def run_service(name: str, build: Callable[[], Serve]) -> NoReturn:
    """Run one service until SIGTERM or SIGINT, then exit.

    Args:
        name: the service's name in logs.
        build: reads settings and answers the coroutine function to run; it is given the event that says stop.

    Exits with 0 after a graceful stop; 78 if settings, an address or an application are unusable (one line on
    stderr says which, and the fix); 69 if the store or the queue was not available.
    """
    take_ready_pipe()
    keepalive = KeepalivePipe.from_environment()
    die_with_parent(PARENT_DIED)
    try:
        telemetry = TelemetrySettings.load()
        set_up_logging(name, telemetry)
        if failpoints.carry_out:
            log.warning("failpoints enabled, for tests only")
        for variable, meant in misspelt_variables(os.environ).items():
            log.warning("unknown environment variable", variable=variable, meant=meant)
        serve = _set_up(name, build, telemetry)
        _collect_seldom()
        uvloop.run(_until_stopped(serve, keepalive))
    except (StoreUnavailableError, QueueUnavailableError) as error:
        fail(name, error, EXIT_UNAVAILABLE)
    except DulyError as error:
        fail(name, error, EXIT_CONFIG)
    sys.exit(0)


def _collect_seldom() -> None:
    """Batches of hundreds of short-lived objects make the collector run all the time, and find next to nothing.

    What the start has made stays for good, so it is never looked at again; the young are looked at after every
    5,000 that survive and not after 700.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 20, 20)


def _set_up(name: str, build: Callable[[], Serve], telemetry: TelemetrySettings) -> Serve:
    try:
        serve = build()
        serve_metrics(telemetry)
    except (OSError, ValueError) as error:  # nobody foresaw it: the log says where, and the last line what
        log.exception("cannot be set up")
        fail(name, error, EXIT_CONFIG)
    return serve


def fail(name: str, error: Exception, code: int) -> NoReturn:
    """Say in one line what is wrong and end."""
    print(f"duly {name}: {error}", file=sys.stderr, flush=True)  # noqa: T201 (for people, not for the log)
    sys.exit(code)


async def _until_stopped(serve: Serve, keepalive: KeepalivePipe | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT, PARENT_DIED):
        loop.add_signal_handler(signal_number, stop.set)
    if keepalive is not None:
        keepalive.watch(loop, stop.set)
    try:
        await serve(stop)
    except DulyError as error:
        _let_go_of_all(error)
        raise
    log.info("stopped")


def _let_go_of_all(error: BaseException) -> None:
    """What the frames hold of an error that is told in one line: gRPC's servers must end before the loop does."""
    chain: BaseException | None = error
    while chain is not None:
        traceback.clear_frames(chain.__traceback__)
        chain = chain.__cause__ or chain.__context__
    gc.collect()
