"""What the console counts, and the log lines that go with it."""

import time

import structlog
from prometheus_client import Counter, Histogram

from duly_core.process.telemetry import SECONDS

log = structlog.get_logger()

_LOGGED_EVERY_S = 1.0

_pages = Counter(
    "duly_console_pages_total", "Pages of the console served, by page and status.", ["page", "status"]
)
_page_seconds = Histogram(
    "duly_console_page_seconds", "How long pages of the console took to make.", ["page"], buckets=SECONDS
)
_sign_ins = Counter(
    "duly_console_sign_ins_total", "Tokens that people signed in with, by answer.", ["answer"]
)


class SignInLog:
    """Counts and logs who signs in. Of refused tokens at most one a second is logged, with how many were not."""

    def __init__(self) -> None:
        self._log_at = float("-inf")
        self._left_out = 0

    def accepted(self, principal: str, peer: str) -> None:
        """Log who signed in, and from where."""
        _sign_ins.labels("accepted").inc()
        log.info("signed in", principal=principal, peer=peer)

    def refused(self, reason: str, peer: str) -> None:
        """Log why a token did not sign in. The token is a secret, even one that is no longer valid."""
        _sign_ins.labels("refused").inc()
        if time.monotonic() < self._log_at:
            self._left_out += 1
            return
        log.warning("sign-in refused", reason=reason, peer=peer, left_out=self._left_out)
        self._log_at = time.monotonic() + _LOGGED_EVERY_S
        self._left_out = 0


def page_served(page: str, status: int, seconds: float) -> None:
    """Count a page by its name in the table of routes."""
    _pages.labels(page, str(status)).inc()
    _page_seconds.labels(page).observe(seconds)
