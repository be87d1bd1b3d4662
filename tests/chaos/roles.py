"""What a forked process of a run becomes: a service, all three services in one loop, or a host."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from duly_controller.__main__ import run_worker
from duly_core.service import Serve, run_service
from duly_core.store.local_hints import LocalHints
from duly_frontend.__main__ import build as build_frontend
from duly_frontend.__main__ import main as run_frontend
from duly_hsc.__main__ import build as build_hsc
from duly_hsc.__main__ import main as run_hsc
from duly_store_consumer.__main__ import build as build_store_consumer
from duly_store_consumer.__main__ import main as run_store_consumer
from tests.chaos.topology import FRONTEND, HOST, HSC, SERVER, STORE_CONSUMER


def _run_server(_: Sequence[str]) -> None:
    """Frontend, Store Consumer and HSC in one loop, as `duly server` runs them."""
    run_service("server", _build_server)


def _build_server() -> Serve:
    hints = LocalHints()
    serves = [build(hints) for build in (build_frontend, build_store_consumer, build_hsc)]

    async def serve(stop: asyncio.Event) -> None:
        running = [asyncio.ensure_future(each(stop)) for each in serves]
        try:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.set()
            await asyncio.gather(*running)

    return serve


def _run_host(arguments: Sequence[str]) -> None:
    application, processes, slots = arguments
    run_worker(application, int(processes), int(slots))


ROLES: Mapping[str, Callable[[Sequence[str]], None]] = {
    FRONTEND: lambda _: run_frontend(),
    HSC: lambda _: run_hsc(),
    STORE_CONSUMER: lambda _: run_store_consumer(),
    SERVER: _run_server,
    HOST: _run_host,
}
