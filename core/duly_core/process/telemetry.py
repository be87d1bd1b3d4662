"""Logs and metrics of a process: structured lines on stderr, Prometheus on a port of its own."""

import logging
import os
import sys
from contextlib import suppress
from functools import cache
from typing import ClassVar, Literal, TextIO, cast

import structlog
from prometheus_client import Counter, Gauge, Histogram, start_http_server
from pydantic import Field, field_validator

from duly_core.config.addresses import is_loopback
from duly_core.config.live_sections import LiveTelemetrySettings
from duly_core.errors import PortInUseError, SettingsError
from duly_core.process.lambda_metrics import DEFAULT_MOST, named_lambdas
from duly_core.process.log_levels import log_levels

_LAST_PORT = 65_535


class TelemetrySettings(LiveTelemetrySettings):
    """`[telemetry]`: logs and metrics."""

    SECTION: ClassVar[str] = "telemetry"

    log_format: Literal["console", "json"] = "json"
    """`json`: an object for each event. `console`: text for people."""
    metrics_listen: str = ""
    """HOST:PORT of the Prometheus endpoint. Empty: no metrics."""
    allow_remote_metrics: bool = False
    """Serve metrics on other addresses than loopback. Whoever reaches them reads the names of lambdas and how much they run."""
    metrics_lambdas: int = Field(default=DEFAULT_MOST, ge=1, le=100_000)
    """The most lambdas with series of their own in each metric: those that are used most. The others share the label `other`."""

    @field_validator("metrics_listen")
    @classmethod
    def _has_a_port(cls, address: str) -> str:
        port = address.rpartition(":")[2]
        if address and not (port.isascii() and port.isdecimal() and int(port) <= _LAST_PORT):
            message = f"{address!r} is not HOST:PORT, such as 127.0.0.1:7411"
            raise ValueError(message)
        return address


SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
"""Buckets of every histogram of seconds: from a good start to a bad outage."""

SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
"""Buckets of every histogram of group sizes."""

clock_ahead = Gauge(
    "duly_clock_ahead_seconds",
    "By how much this machine's clock is ahead of Postgres's; negative: behind, NaN: unknown. Servers and Controllers show it.",
)
clock_ahead.set(float("nan"))
_calls = Counter("duly_rpc_total", "Calls served, by method and status code.", ["method", "code"])
_call_seconds = Histogram("duly_rpc_seconds", "How long calls took to serve.", ["method"], buckets=SECONDS)


def observe_call(method: str, code: str, seconds: float) -> None:
    """Count one served call; the servers' CallObserver."""
    calls, call_seconds = _children(method, code)
    calls.inc()
    call_seconds.observe(seconds)


@cache
def _children(method: str, code: str) -> tuple[Counter, Histogram]:
    """Looked up once: of a small call, finding them took longer than counting."""
    return _calls.labels(method, code), _call_seconds.labels(method)


class _Lenient:
    """Stderr; once nobody reads it any more, lines are lost in silence: a process that drains must go on.

    A callback process shares the open file of stderr, and may make it non-blocking for all: a full pipe would then
    refuse lines. Blocking mode is set before each write.
    """

    def write(self, text: str) -> None:
        _block()
        with suppress(OSError, ValueError):
            sys.stderr.write(text)

    def flush(self) -> None:
        _block()
        with suppress(OSError, ValueError):
            sys.stderr.flush()


def _block() -> None:
    with suppress(OSError, ValueError):  # no file, or closed
        os.set_blocking(sys.stderr.fileno(), True)


def set_up_logging(service: str, settings: TelemetrySettings) -> None:
    """Send this process's log lines to stderr, each with the service's name; libraries' too, from warning on."""
    renderer: structlog.types.Processor = (
        structlog.processors.JSONRenderer()
        if settings.log_format == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            pad_event_to=0,
            exception_formatter=structlog.dev.plain_traceback,  # the other shows local variables: payloads too
        )
    )
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        log_levels.drop_below,  # not by the wrapper: loggers keep theirs, and the level may change
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.format_exc_info, renderer]
        if settings.log_format == "json"
        else [*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Lenient())),
        cache_logger_on_first_use=True,
    )
    log_levels.default(settings.log_level)
    structlog.contextvars.bind_contextvars(service=service)
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # outages are ours to tell, and once
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )


def serve_metrics(settings: TelemetrySettings) -> None:
    """Bound the label `lambda`, and open the Prometheus endpoint, if there is to be one.

    Raises:
        PortInUseError: somebody else listens there.
        SettingsError: other machines could read them, and nobody said so.
    """
    named_lambdas.limit(settings.metrics_lambdas)
    if not settings.metrics_listen:
        return
    host, _, port = settings.metrics_listen.rpartition(":")
    host = host or "127.0.0.1"
    if not (settings.allow_remote_metrics or is_loopback(f"{host}:{port}")):
        raise SettingsError(
            f"telemetry.metrics_listen: {settings.metrics_listen} can be reached from other machines: let only Prometheus reach "
            "it (a firewall), and set telemetry.allow_remote_metrics = true (DULY_TELEMETRY_ALLOW_REMOTE_METRICS)"
        )
    try:
        start_http_server(int(port), addr=host)
    except OSError as error:
        raise PortInUseError(
            f"cannot serve metrics on {settings.metrics_listen}: {error.strerror}; "
            "choose another telemetry.metrics_listen (DULY_TELEMETRY_METRICS_LISTEN)"
        ) from error
