"""What a forked process of a run becomes: a service, all three services in one loop, or a host."""

from collections.abc import Callable, Mapping, Sequence

from duly_controller.__main__ import run_worker
from duly_frontend.__main__ import main as run_frontend
from duly_hsc.__main__ import main as run_hsc
from duly_server.__main__ import main as run_server
from duly_store_consumer.__main__ import main as run_store_consumer
from tests.chaos.topology import FRONTEND, HOST, HSC, SERVER, STORE_CONSUMER


def _run_host(arguments: Sequence[str]) -> None:
    application, processes, slots = arguments
    run_worker(application, int(processes), int(slots))


ROLES: Mapping[str, Callable[[Sequence[str]], None]] = {
    FRONTEND: lambda _: run_frontend(),
    HSC: lambda _: run_hsc(),
    STORE_CONSUMER: lambda _: run_store_consumer(),
    SERVER: lambda _: run_server(),
    HOST: _run_host,
}
