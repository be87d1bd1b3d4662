"""A store with one or two server processes in front of it, and nothing that runs tasks."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from duly_local.child_spec import SupervisionTiming
from duly_local.merged_output import MergedOutput
from duly_local.moto import AWS_ENVIRONMENT, MotoServer
from duly_local.options import HSC, SERVER, Ports, StackOptions
from duly_local.services import child_specs
from duly_local.stack import LocalStack
from duly_local.supervisor import Supervisor

_READY_WITHIN = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Installation:
    """Where its parts are."""

    frontend: str
    hscs: Sequence[str]
    metrics: Sequence[str]
    """Of each server process."""
    sqs: str
    """The endpoint; empty: there is no queue beside the store."""


@asynccontextmanager
async def installed(backend: str, servers: int, folder: Path) -> AsyncIterator[Installation]:
    """Start it in this folder; stop it."""
    pace = SupervisionTiming(ready_within=_READY_WITHIN)
    options = StackOptions(
        data_directory=folder / "data", queue="sqs" if backend == "sqs" else "store", ports=Ports.free(())
    )
    async with AsyncExitStack() as services:
        output = MergedOutput(services.enter_context((folder / "duly.log").open("ab")))
        if options.needs_moto:
            os.environ |= AWS_ENVIRONMENT  # for the receivers of this process
            moto = services.enter_context(MotoServer(folder / "sqs.log"))
            options = replace(options, endpoint_url=moto.endpoint_url)
        stack = await services.enter_async_context(LocalStack(options, output, pace))
        all_ports = [stack.ports]
        for _ in range(1, servers):
            ports = Ports.free(())
            supervisor = Supervisor(child_specs(options, stack.dsn, ports), output, pace)
            supervisor.start()
            services.push_async_callback(supervisor.stop)
            await supervisor.wait_until_ready(_READY_WITHIN)
            all_ports.append(ports)
        yield Installation(
            stack.frontend_address,
            [ports.address(HSC) for ports in all_ports],
            [ports.metrics_address(SERVER) for ports in all_ports],
            options.endpoint_url or "",
        )
