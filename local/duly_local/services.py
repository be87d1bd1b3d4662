"""The commands of the local stack's processes."""

import sys
from dataclasses import replace
from datetime import timedelta

from duly_local.child_spec import ChildSpec
from duly_local.environment import service_environment
from duly_local.keepalive_pipes import KeepalivePipes
from duly_local.options import AUTOSCALER, CONSOLE, FRONTEND, HSC, SERVER, SERVICES, Ports, StackOptions

# Only a worker may import what stands in the working folder: a queue.py there must not become ours.
_SERVICE = (sys.executable, "-P", "-m", "duly_cli")
_WORKER = (sys.executable, "-m", "duly_cli", "worker")

_DRAINING = timedelta(seconds=10)
"""A host whose Controller died leaves Executors that drain: see `environment.DRAIN_GRACE`."""


def child_specs(
    options: StackOptions, dsn: str, ports: Ports, keepalive_pipes: KeepalivePipes | None = None
) -> list[ChildSpec]:
    """Return all of them, for one supervisor; without `keepalive_pipes`, the services die with us."""
    lines = keepalive_pipes or KeepalivePipes()

    def spec(name: str, command: tuple[str, ...]) -> ChildSpec:
        environment = service_environment(options, dsn, ports, name)
        addresses = ports.addresses(name)
        if name == SERVER and options.console:
            addresses += (ports.address(CONSOLE),)
        return ChildSpec(name, command, environment, addresses)

    services = [
        lines.of_service(spec(name, (*_SERVICE, name, *_roles(options, name))))
        for name in options.services
        if name != AUTOSCALER
    ]
    needed = (FRONTEND, HSC) if options.separate else (SERVER,)
    workers = [
        replace(
            lines.of_worker(spec(name, (*_WORKER, app))),
            depends_on=needed,
            cleanup_grace=_DRAINING,
            reloads=options.reload,
        )
        for name, app in options.workers.items()
    ]
    # its workers are its children: it ends after them, and services after it
    autoscalers = [
        replace(lines.of_worker(spec(AUTOSCALER, (*_WORKER[:-1], AUTOSCALER))), depends_on=needed)
        for name in options.services
        if name == AUTOSCALER
    ]
    return services + workers + autoscalers


def _roles(options: StackOptions, name: str) -> tuple[str, ...]:
    return ("--roles", ",".join((*SERVICES, CONSOLE))) if name == SERVER and options.console else ()
