"""Settings of the Executor."""

import os
import pwd
from datetime import timedelta
from typing import Self

from pydantic import Field, field_validator, model_validator

from duly_core.config.addresses import Peers
from duly_core.config.live_sections import LiveExecutorSettings
from duly_core.config.settings import Duration
from duly_executor.containment.cgroups_or_subreaper import Mode
from duly_executor.processes.environment import VariableNamesText
from duly_executor.slots.reservations import Reservation, ReservedSlotsText, check_sum, parse_reservations
from duly_executor.work.domains import DomainsText, parse_domains
from duly_executor.work.labels import LabelsText, parse_labels


class ExecutorSettings(LiveExecutorSettings):
    """`[executor]`: of each Executor process; a host may run several."""

    hsc_address: Peers = "127.0.0.1:7402"
    """Where work comes from, and heartbeats and results go: HOST:PORT, several with commas between them, or dns:///NAME:PORT."""
    processes: int = Field(default=1, ge=1, le=256)
    """How many callback processes an Executor has."""
    slots: int = Field(default=8, ge=1, le=1024)
    """How many callbacks one callback process runs at a time, each on a thread of its own."""
    reserved_slots: ReservedSlotsText = ""
    """Slots of an Executor that only these lambdas may use: {"billing" = 2, "mail:high" = 1} in the file, or
    "billing=2, mail:high=1". Empty: all may use all slots."""
    prefetch_limit: int = Field(default=1_000, ge=0)
    """The most tasks held beyond the slots; `prefetch_time` decides how many are."""
    prefetch_time: Duration = timedelta(milliseconds=100)
    """An Executor prefetches as many tasks as it completes within this time."""
    poll_timeout: Duration = Field(default=timedelta(seconds=20), le=timedelta(seconds=60))
    """How long one request for work stays open."""
    domains: DomainsText = ""
    """Domains whose tasks run here: ["lab-a", "default"] in the file, or "lab-a, default". `default` are the tasks of no domain.
    Empty: those of no domain."""
    labels: LabelsText = ""
    """What this host can do or is: ["gpu", "region=eu"] in the file, or "gpu, region=eu". Lambdas and tasks that require other labels
    do not run here."""
    recall_after: Duration = timedelta(milliseconds=500)
    """When no task ended for this long, claimed tasks without a slot are released, for other workers."""
    answer_timeout: Duration = timedelta(seconds=5)
    """A callback process is killed if it does not return waiting tasks within this time when asked."""
    stopped_limit: Duration = timedelta()
    """A callback process that is stopped (SIGSTOP) for longer than this is killed; 0s: timing.heartbeat_timeout."""
    containment: Mode = "auto"
    """How Duly kills the processes that callbacks start: `cgroup`, `subreaper` (weaker), or `auto`: cgroup where possible."""
    import_timeout: Duration = timedelta(seconds=60)
    """How long a callback process may take to import the application."""
    cancel_grace: Duration = timedelta(seconds=10)
    """How long a callback may run on after a cancel before it is interrupted."""
    interrupt_grace: Duration = timedelta(milliseconds=500)
    """How long an interrupted callback may run on before its process takes no more work."""
    neighbour_grace: Duration = timedelta(seconds=10)
    """How long such a process lives on for the other callbacks in it; then it is killed, and they run again, uncharged. A
    short time ends overruns soon, a long time lets long callbacks finish."""
    callback_user: str = ""
    """User of the system that callback processes run as; the worker must be started as root. Programs that callbacks start
    gain no rights (PR_SET_NO_NEW_PRIVS): `sudo` fails. Empty: the worker's own."""
    callback_environment: VariableNamesText = ""
    """Variables of the worker's environment that callbacks see besides the usual ones (docs/lambdas.md): a list such as
    ["DATABASE_URL", "AWS_*"], or a text with commas. `*` stands for Duly's own variables only behind `DULY_`."""
    keep_output: bool = True
    """Whether Duly keeps what callbacks print and log (docs/output.md). A lambda of its own: `@app.callback(keep_output=False)`."""
    isolated_processes: int = Field(default=4, ge=1, le=256)
    """The most additional callback processes, for tasks that crashed one and for isolated lambdas (`isolate_for`)."""
    isolate_for: Duration = timedelta(seconds=60)
    """How long a lambda that crashed a process or overran runs in processes of its own; longer after repeats. 0s: never."""
    recycle_after_tasks: int = Field(default=0, ge=0)
    """A callback process that has ended so many tasks is replaced by a new one. 0: never."""
    recycle_above_memory: int = Field(default=0, ge=0)
    """A callback process whose resident memory is more than so many bytes, without that of programs that it started, is replaced by
    a new one. 0: never."""
    debug_port: int = Field(default=0, ge=0, le=65_535)
    """While you write callbacks: the port of 127.0.0.1 at which a debugger attaches to the callback process (docs/ide.md). It
    needs debugpy. `max_runtime` does not hold then, and any user of the machine can run code in the process. 0: none."""
    drain_grace: Duration = timedelta(seconds=30)
    """How long a stopping Executor lets callbacks finish before it kills their processes and releases their tasks, uncharged."""
    journal_folder: str = ""
    """Folder of the claim journals, from which a worker takes over the tasks of a killed one. Workers of one host take
    over from each other if they name the same folder. No other host may use it. Empty: a private folder in
    $XDG_RUNTIME_DIR, else in the temporary folder, one for each `hsc_address`."""

    @model_validator(mode="after")
    def _check_reserved(self) -> Self:
        check_sum(self.reservations, self.processes, self.slots)
        return self

    @model_validator(mode="after")
    def _check_debugged(self) -> Self:
        if self.debug_port and self.processes > 1:
            raise ValueError(
                "debug_port (--debug-port) is the port of one callback process: leave processes (--processes) at 1"
            )
        return self

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        """What `reserved_slots` says."""
        return parse_reservations(self.reserved_slots)

    @property
    def served_domains(self) -> tuple[str, ...]:
        """What `domains` says; empty is of no domain."""
        return parse_domains(self.domains)

    @property
    def host_labels(self) -> tuple[str, ...]:
        """What `labels` says."""
        return parse_labels(self.labels)

    @field_validator("callback_user")
    @classmethod
    def _check_user(cls, name: str) -> str:
        if not name:
            return name
        if os.geteuid() != 0:
            raise ValueError("a worker that is not started as root cannot run callbacks as another user")
        try:
            pwd.getpwnam(name)
        except KeyError:
            raise ValueError(f"this system has no user {name!r}") from None
        return name

    @property
    def callback_uid(self) -> int:
        """The user that callback processes become."""
        return pwd.getpwnam(self.callback_user).pw_uid if self.callback_user else os.geteuid()

    @property
    def places(self) -> int:
        """Callback processes that may live at a time: as many as `processes` may linger beside those that work."""
        return 2 * self.processes + self.isolated_processes
