"""What the console counts, and the log lines that go with it."""

import time
from collections.abc import Callable

import structlog
from prometheus_client import Counter, Histogram

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
_sign_ins = Counter(
    "duly_console_sign_ins_total", "Tokens that people signed in with, by answer.", ["answer"]
)


class SignInLog:
    """Counts and logs who signs in. Of refused tokens at most one a second is logged, with how many were not."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._refusals = SeldomLog(log, "sign-in refused", clock)

    def accepted(self, principal: str, peer: str) -> None:
        """Log who signed in, and from where."""
        _sign_ins.labels("accepted").inc()
        log.info("signed in", principal=principal, peer=peer)

    def refused(self, reason: str, peer: str) -> None:
        """Log why a token did not sign in. The token is a secret, even one that is no longer valid."""
        _sign_ins.labels("refused").inc()
        self._refusals.warn(reason=reason, peer=peer)


_refusals = SeldomLog(log, "connection refused: too many are open")


def connection_refused(peer: str) -> None:
    """Count a request on a connection beyond the bounds, and log whose it was."""
    _connections_refused.inc()
    _refusals.warn(peer=peer)


def page_served(page: str, status: int, seconds: float) -> None:
    """Count a page by its name in the table of routes."""
    _pages.labels(page, str(status)).inc()
    _page_seconds.labels(page).observe(seconds)
