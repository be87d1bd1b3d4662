"""What the console counts, and the log lines that go with it."""

import structlog
from prometheus_client import Counter, Histogram

from duly_core.telemetry import SECONDS

log = structlog.get_logger()

_pages = Counter(
    "duly_console_pages_total", "Pages of the console served, by page and status.", ["page", "status"]
)
_page_seconds = Histogram(
    "duly_console_page_seconds", "How long pages of the console took to make.", ["page"], buckets=SECONDS
)


def page_served(page: str, status: int, seconds: float) -> None:
    """Count a page by its name in the table of routes."""
    _pages.labels(page, str(status)).inc()
    _page_seconds.labels(page).observe(seconds)
