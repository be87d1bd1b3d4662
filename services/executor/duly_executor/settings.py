"""Settings of the Executor."""

from datetime import timedelta
from typing import ClassVar

from pydantic import Field

from duly_core.addresses import Peers
from duly_core.settings import Duration, Section
from duly_executor.containment import Mode


class ExecutorSettings(Section):
    """`[executor]`: of each Executor process; a host may run several."""

    SECTION: ClassVar[str] = "executor"

    hsc_address: Peers = "127.0.0.1:7402"
    """Where heartbeats and results go; several IP:PORT may be given, separated by commas."""
    processes: int = Field(default=1, ge=1, le=256)
    """Callback processes."""
    slots: int = Field(default=8, ge=1, le=1024)
    """Callbacks that one callback process runs at a time, each on a thread of its own."""
    prefetch_limit: int = Field(default=1_000, ge=0)
    """Tasks held beyond the slots, at most: how many it really is follows from how fast they end."""
    prefetch_time: Duration = timedelta(milliseconds=100)
    """Prefetches as many tasks as the Executor completes within this time."""
    poll_timeout: Duration = Field(default=timedelta(seconds=20), le=timedelta(seconds=60))
    """How long one request for work stays open."""
    recall_after: Duration = timedelta(milliseconds=500)
    """When nothing ended for this long, what waits for a slot is handed back to other hosts."""
    answer_timeout: Duration = timedelta(seconds=5)
    """A callback process that does not answer within this, when what waits is asked back from it, is killed."""
    stopped_limit: Duration = timedelta()
    """A callback process that is stopped (SIGSTOP) for longer than this is killed; 0s: timing.heartbeat_timeout."""
    containment: Mode = "auto"
    """What kills the processes that callbacks start: `cgroup`, `subreaper` (weaker), or `auto`, the better of them here."""
    import_timeout: Duration = timedelta(seconds=60)
    """A callback process must have imported the application within this."""
    cancel_grace: Duration = timedelta(seconds=10)
    """A callback that was asked to stop is interrupted after this."""
    interrupt_grace: Duration = timedelta(milliseconds=500)
    """A callback that was interrupted and has not ended after this is killed, once its neighbours have ended."""
    isolated_processes: int = Field(default=4, ge=1, le=256)
    """Callback processes beside the others, at most: for tasks that crashed one, and for lambdas that misbehaved lately."""
    isolate_for: Duration = timedelta(seconds=60)
    """Runs a lambda that crashed a process or overran in processes of its own, longer after repeats; 0s: never."""
    drain_grace: Duration = timedelta(seconds=30)
    """How long a stopping Executor lets running callbacks finish before it hands them back."""
    journal_folder: str = ""
    """Where claims are journaled, to be taken over when all of a worker dies; empty: a folder of this user's in
    $XDG_RUNTIME_DIR or the temporary folder, one for each `hsc_address`. Workers of one host must use the same, and no other
    host may: locks and process numbers mean nothing elsewhere."""

    @property
    def places(self) -> int:
        """Callback processes that may live at a time: as many as `processes` may linger beside those that work."""
        return 2 * self.processes + self.isolated_processes
