"""Settings of the Frontend."""

from datetime import timedelta
from typing import ClassVar

from pydantic import Field

from duly_core.addresses import Listen, OptionalListen
from duly_core.rpc.field_count import MOST_FIELDS
from duly_core.settings import Duration, Section


class FrontendSettings(Section):
    """`[frontend]`."""

    SECTION: ClassVar[str] = "frontend"

    listen: Listen = "127.0.0.1:7401"
    """HOST:PORT for clients and workers."""
    health_listen: OptionalListen = ""
    """HOST:PORT of a second server that answers health checks only; empty: none."""
    horizon: Duration = timedelta(days=365)
    """How far ahead a task may be scheduled."""
    max_tasks_per_call: int = Field(default=10_000, ge=1, le=MOST_FIELDS)
    """The most tasks in one Schedule."""
    max_waited_per_call: int = Field(default=1_000, ge=1, le=MOST_FIELDS)
    """The most task ids in one call that reads, waits, cancels or redrives."""
    max_wait: Duration = timedelta(seconds=60)
    """The longest time of one WaitTask."""
    max_group: int = 1_000
    """The most tasks that one statement writes. A larger single call is not split."""
    group_concurrency: int = 2
    """How many statements that write tasks run at a time."""
    read_connections: int = Field(default=4, ge=1)
    """Connections for GetTask and WaitTask. Writes use those of `store.connections`."""
    list_connections: int = Field(default=2, ge=1)
    """Connections for ListTasks, RedriveTasks, CancelTasks and PurgeTasks."""
    list_timeout: Duration = Field(default=timedelta(seconds=3), ge=timedelta(milliseconds=10))
    """A list, or a redrive, cancel or purge by filter, that takes longer is refused."""
