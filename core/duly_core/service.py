"""How every Duly process runs: logs, loop, signals, and an exit code that says who must act."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import NoReturn

import structlog
import uvloop

from duly_core.errors import DulyError, QueueUnavailableError, StoreUnavailableError
from duly_core.process import die_with_parent
from duly_core.telemetry import TelemetrySettings, serve_metrics, set_up_logging

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
    stderr says which, and the mend); 69 if the store or the queue was not to be had.
    """
    die_with_parent()
    try:
        telemetry = TelemetrySettings.load()
        set_up_logging(name, telemetry)
        serve = build()
        serve_metrics(telemetry)
        uvloop.run(_until_stopped(serve))
    except (StoreUnavailableError, QueueUnavailableError) as error:
        fail(name, error, EXIT_UNAVAILABLE)
    except DulyError as error:
        fail(name, error, EXIT_CONFIG)
    sys.exit(0)


def fail(name: str, error: DulyError, code: int) -> NoReturn:
    """Say in one line what is wrong and end."""
    print(f"duly {name}: {error}", file=sys.stderr, flush=True)  # noqa: T201 (for people, not for the log)
    sys.exit(code)


async def _until_stopped(serve: Serve) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stop.set)
    await serve(stop)
    log.info("stopped")
