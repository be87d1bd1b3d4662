"""What the local stack is told: which parts, where the data is, which ports."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

from duly_local.ports import LOOPBACK, free_ports

# Any of them says that the user has an SQS to go to.
_AWS_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_PROFILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_SQS",
    "DULY_QUEUE_ENDPOINT_URL",
)

FRONTEND = "frontend"
STORE_CONSUMER = "store-consumer"
HSC = "hsc"
SERVICES = (FRONTEND, STORE_CONSUMER, HSC)
SERVER = "server"
"""The process that runs all of `SERVICES`, and the console."""
CONSOLE = "console"
AUTOSCALER = "autoscaler"
"""Starts and ends the workers of an elastic stack."""


def default_data_directory() -> Path:
    """`$XDG_DATA_HOME/duly`, or `~/.local/share/duly`."""
    configured = os.environ.get("XDG_DATA_HOME", "")
    # A relative one is invalid and to be ignored, says the XDG specification.
    home = Path(configured) if configured.startswith("/") else Path.home() / ".local" / "share"
    return home / "duly"


def has_aws_settings() -> bool:
    """Whether the environment says how to reach an SQS."""
    return any(os.environ.get(variable) for variable in _AWS_VARIABLES)


@dataclass(frozen=True, slots=True)
class Ports:
    """Where each process listens on loopback: its gRPC (at least the health check; the console: HTTP), and its metrics."""

    grpc: Mapping[str, int]
    metrics: Mapping[str, int]

    @classmethod
    def usual(cls, workers: tuple[str, ...]) -> Self:
        """7401 frontend, 7402 HSC, 7403 Store Consumer, 7480 console, 7501... workers; metrics on 7411..."""
        grpc = {FRONTEND: 7401, HSC: 7402, STORE_CONSUMER: 7403, AUTOSCALER: 7404, CONSOLE: 7480}
        grpc |= {name: 7501 + position for position, name in enumerate(workers)}
        metrics = {name: 7411 + position for position, name in enumerate((*SERVICES, *workers))}
        return cls(grpc, metrics | {CONSOLE: 7481, AUTOSCALER: 7482})

    @classmethod
    def free(cls, workers: tuple[str, ...]) -> Self:
        """Ports that nothing uses now, so that any number of stacks run side by side."""
        names = (*SERVICES, CONSOLE, AUTOSCALER, *workers)
        found = free_ports(2 * len(names))
        return cls(dict(zip(names, found[::2], strict=True)), dict(zip(names, found[1::2], strict=True)))

    def address(self, name: str) -> str:
        """`host:port` of the gRPC of a service or a worker."""
        return f"{LOOPBACK}:{self.grpc[name]}"

    def addresses(self, process: str) -> tuple[str, ...]:
        """`host:port` of each gRPC server of a process."""
        return tuple(self.address(name) for name in (SERVICES if process == SERVER else (process,)))

    def metrics_port(self, process: str) -> int:
        """The port of a process's metrics; the server process has the Frontend's."""
        return self.metrics[FRONTEND if process == SERVER else process]

    def metrics_address(self, process: str) -> str:
        """`host:port` of a process's metrics."""
        return f"{LOOPBACK}:{self.metrics_port(process)}"


@dataclass(frozen=True, slots=True)
class StackOptions:
    """What `duly up` runs."""

    data_directory: Path = field(default_factory=default_data_directory)
    dsn: str | None = None
    """A Postgres that runs already, instead of the embedded one."""
    queue: Literal["store", "sqs"] = "store"
    endpoint_url: str | None = None
    """sqs: where it is; without it, and without any of AWS's own settings, moto's server is started."""
    apps: tuple[str, ...] = ()
    """`module:app` of the lambda owners' code; one host (a Controller and its Executors) for each."""
    executors: int | None = None
    """Executors per app; None, here and below: the service's own default."""
    processes: int | None = None
    """Callback processes per Executor."""
    slots: int | None = None
    """Callbacks at a time per callback process."""
    reload: bool = False
    """Restart workers when their application's files change."""
    separate: bool = False
    """A process for each service, instead of one server process for all of them."""
    profile: Literal["embedded", "production"] = "embedded"
    ports: Literal["usual", "free"] | Ports = "usual"
    console: bool = False
    """Serve the console, too."""
    elastic: bool = False
    """An autoscaler starts and ends workers, between none and `max_workers` of each app, instead of one that always runs."""
    max_workers: int | None = None
    """Of each app; None: as many as the machine has processors, for a pool that is new."""
    cells: int | None = None
    """How many cells there are to be; None: those that the data folder has, or a sole store."""

    debug_port: int | None = None
    """Where a debugger attaches to callbacks of the first app; those of the next apps follow."""

    @property
    def workers(self) -> dict[str, str]:
        """The app of each worker that always runs, by the worker's name."""
        return {} if self.elastic else self.pools

    @property
    def pools(self) -> dict[str, str]:
        """The app of each worker or pool of workers, by its name."""
        if len(self.apps) == 1:
            return {"worker": self.apps[0]}
        return {f"worker-{position}": app for position, app in enumerate(self.apps, start=1)}

    def debug_port_of(self, worker: str) -> int | None:
        """Where a debugger attaches to the callbacks of a worker; None: nowhere."""
        return self.debug_port + list(self.workers).index(worker) if self.debug_port is not None else None

    @property
    def services(self) -> tuple[str, ...]:
        """The names of the processes that run the services."""
        elastic = (AUTOSCALER,) if self.elastic else ()
        if not self.separate:
            return (SERVER, *elastic)
        return (*SERVICES, *((CONSOLE,) if self.console else ()), *elastic)

    def choose_ports(self) -> Ports:
        """The ports of one run."""
        if isinstance(self.ports, Ports):
            return self.ports
        names = tuple(self.workers)
        return Ports.usual(names) if self.ports == "usual" else Ports.free(names)

    @property
    def needs_moto(self) -> bool:
        """Whether the queue is SQS and nobody said which."""
        return self.queue == "sqs" and not self.endpoint_url and not has_aws_settings()
