"""What the console counts, and the log lines that go with it."""

import time
from collections.abc import Callable

import structlog
from prometheus_client import Counter, Gauge, Histogram

from duly_core.process.seldom_log import SeldomLog
from duly_core.process.telemetry import SECONDS

log = structlog.get_logger()

_pages = Counter(
    "duly_console_pages_total", "Pages of the console served, by page and status.", ["page", "status"]
)
_page_seconds = Histogram(
    "duly_console_page_seconds", "How long pages of the console took to make.", ["page"], buckets=SECONDS
)
_connections_refused = Counter(
    "duly_console_refused_total", "Requests on connections beyond the bounds, which were answered with 503."
)
_streams = Gauge("duly_console_streams", "Pages of the console that follow changes by a stream now.")
_streams_refused = Counter(
    "duly_console_streams_refused_total",
    "Streams of changes beyond the bounds: their pages look by themselves.",
)
_sign_ins = Counter(
    "duly_console_sign_ins_total",
    "Sign-ins of people by `token` or by `oidc`, by answer.",
    ["by", "answer"],
)
_provider_calls = Counter(
    "duly_console_identity_provider_calls_total",
    "Calls of the identity provider (`metadata`, `code`, `refresh`) by outcome: `answered`, `refused`, `failed`.",
    ["call", "outcome"],
)


class SignInLog:
    """Counts and logs who signs in. Of refused tokens at most one a second is logged, with how many were not."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, by: str = "token") -> None:
        """Make one of sign-ins by a token, or by oidc."""
        self._by = by
        self._refusals = SeldomLog(log, "sign-in refused", clock)

    def accepted(self, principal: str, peer: str) -> None:
        """Log who signed in, and from where."""
        _sign_ins.labels(self._by, "accepted").inc()
        log.info("signed in", principal=principal, peer=peer, by=self._by)

    def refused(self, reason: str, peer: str) -> None:
        """Log why somebody did not sign in. A token is a secret, even one that is no longer valid."""
        _sign_ins.labels(self._by, "refused").inc()
        self._refusals.warn(reason=reason, peer=peer, by=self._by)


_provider_failures = SeldomLog(log, "identity provider does not answer")
_provider_refusals = SeldomLog(log, "identity provider refuses")


def provider_answered(call: str) -> None:
    """Count a call of the identity provider that it answered."""
    _provider_calls.labels(call, "answered").inc()


def provider_refused(call: str, error: str) -> None:
    """Count an answer that is an error, and log its code. A description might repeat a token."""
    _provider_calls.labels(call, "refused").inc()
    _provider_refusals.warn(call=call, error=error)


def provider_failed(call: str, reason: str) -> None:
    """Count and log a call of the identity provider without a usable answer."""
    _provider_calls.labels(call, "failed").inc()
    _provider_failures.warn(call=call, reason=reason)


_refusals = SeldomLog(log, "connection refused: too many are open")


def connection_refused(peer: str) -> None:
    """Count a request on a connection beyond the bounds, and log whose it was."""
    _connections_refused.inc()
    _refusals.warn(peer=peer)


def streams_are_open(number: int) -> None:
    """Set how many streams of changes are open."""
    _streams.set(number)


def stream_refused() -> None:
    """Count a stream of changes beyond the bounds."""
    _streams_refused.inc()


def page_served(page: str, status: int, seconds: float) -> None:
    """Count a page by its name in the table of routes."""
    _pages.labels(page, str(status)).inc()
    _page_seconds.labels(page).observe(seconds)
