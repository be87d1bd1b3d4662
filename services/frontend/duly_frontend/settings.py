"""Settings of the Frontend."""

from datetime import timedelta
from typing import ClassVar

from pydantic import Field

from duly_core.config.addresses import Listen, OptionalListen
from duly_core.config.live_sections import LiveFrontendSettings
from duly_core.config.settings import Duration


class FrontendSettings(LiveFrontendSettings):
    """`[frontend]`."""

    SECTION: ClassVar[str] = "frontend"

    listen: Listen = "127.0.0.1:7401"
    """HOST:PORT for clients and workers."""
    health_listen: OptionalListen = ""
    """HOST:PORT of a second server that answers health checks only; empty: none."""
    max_group: int = 1_000
    """The most tasks that one statement writes. A larger single call is not split."""
    group_concurrency: int = 2
    """How many statements that write tasks run at a time."""
    read_connections: int = Field(default=4, ge=1)
    """Connections for GetTask and WaitTask. Writes use those of `store.connections`."""
    list_connections: int = Field(default=2, ge=1)
    """Connections for ListTasks, RedriveTasks, CancelTasks and PurgeTasks."""
    public_url: str = ""
    """Where people reach the console, such as https://duly.example.com: addresses of events begin with it. Empty: they have no address,
    only a token."""
    caller_calls: int = Field(default=32, ge=1)
    """Calls of one principal that are under way; without principals, of one connection. Further ones wait. Calls that wait for
    ends do not count."""
    caller_share: float = Field(default=0.5, gt=0, le=1)
    """The share of the time that one principal may use for large requests, and for each other kind of large work. Beyond it
    calls are refused with RESOURCE_EXHAUSTED and a time to call again."""
    caller_burst: Duration = Field(default=timedelta(seconds=10), gt=timedelta(0))
    """Time that a principal may use beyond its share."""
    list_timeout: Duration = Field(default=timedelta(seconds=3), ge=timedelta(milliseconds=10))
    """A list, or a redrive, cancel or purge by filter, that takes longer is refused."""
    output_limit: int = Field(default=1024 * 1024, ge=64 * 1024, le=64 * 1024 * 1024)
    """How many bytes are kept of what a run prints and logs: the last ones. Of a task the last five runs are kept."""
