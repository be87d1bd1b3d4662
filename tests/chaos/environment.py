"""What each process of a run is told through its environment, and which processes there are."""

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from duly_local.moto import AWS_ENVIRONMENT
from tests.chaos.audit import as_stale_user
from tests.chaos.links import Links
from tests.chaos.plan import Plan
from tests.chaos.process_keeper import Spec
from tests.chaos.process_tree import MARK
from tests.chaos.topology import (
    ENQUEUE_TIMEOUT,
    FILE_GRACE,
    FRONTEND,
    HOST,
    HSC,
    POLL_INTERVAL,
    SERVER,
    SLOTS,
    STALE_HSC,
    STORE_CONSUMER,
    TIMINGS,
)
from tests.fixtures import failpoint_engine

APPLICATION = "tests.chaos.application:app"
JOURNAL = "DULY_CHAOS_JOURNAL"
"""Names the folder that callback processes write their journal to."""
HOST_NAME = "DULY_CHAOS_HOST"
"""Tells them on which host they are, as faults name it."""
ROOT = Path(__file__).parents[2]

_DRAINING = timedelta(seconds=10)
"""A host whose Controller died leaves Executors that drain."""

_COMMON = {
    "PYTHONUNBUFFERED": "1",
    "DULY_TELEMETRY_LOG_FORMAT": "console",
    "DULY_TELEMETRY_METRICS_LISTEN": "",
    "DULY_STORE_STATEMENT_TIMEOUT": "4s",
    "DULY_STORE_ACQUIRE_TIMEOUT": "3s",
    "DULY_STORE_CONNECT_TIMEOUT": "3s",
    "DULY_RPC_CALL_TIMEOUT": "5s",
    "DULY_RPC_SHUTDOWN_GRACE": "1s",
    "DULY_QUEUE_VISIBILITY": "10s",
    "DULY_STORE_CONSUMER_ENQUEUE_TIMEOUT": f"{ENQUEUE_TIMEOUT.total_seconds():g}s",
    "DULY_STORE_CONSUMER_PUT_BACK_DELAY": "500ms",
    "DULY_STORE_CONSUMER_POLL_INTERVAL": f"{POLL_INTERVAL.total_seconds():g}s",
    "DULY_ATTACHMENTS_STORE": "folder",
    "DULY_ATTACHMENTS_GRACE": f"{FILE_GRACE.total_seconds():g}s",
    "DULY_ATTACHMENTS_SWEEP_INTERVAL": "1s",
    "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
}
_OF_HOST = {
    "DULY_CONTROLLER_DWELL_MARGIN": "2s",
    "DULY_CONTROLLER_POLL_TIMEOUT": "5s",
    "DULY_EXECUTOR_POLL_TIMEOUT": "5s",
    "DULY_EXECUTOR_DRAIN_GRACE": "3s",
    "DULY_EXECUTOR_CANCEL_GRACE": "2s",
    "DULY_EXECUTOR_CALLBACK_ENVIRONMENT": "DULY_CHAOS_*",
}
_LISTEN = {
    FRONTEND: "DULY_FRONTEND_LISTEN",
    HSC: "DULY_HSC_LISTEN",
    STORE_CONSUMER: "DULY_STORE_CONSUMER_LISTEN",
    HOST: "DULY_CONTROLLER_HEALTH_LISTEN",
}


class Environments:
    """Of one run."""

    def __init__(
        self,
        plan: Plan,
        links: Links,
        addresses: dict[str, str],
        store_dsn: Callable[[str], str],
        own: dict[str, str],
        claim_journals: Path,
        host_token: str,
        listen: Callable[[str], str] | None = None,
        own_of: Callable[[str], dict[str, str]] = lambda _: {},
    ) -> None:
        """Make them.

        Args:
            plan: of the run.
            links: the proxies.
            addresses: where each service listens, by its name.
            store_dsn: where a process finds the store, by its name.
            own: what all processes of the run are told beside the usual.
            claim_journals: where hosts keep them, each in a folder of its own.
            host_token: the file with the token of hosts, where callers need one.
            listen: where a process listens, by its name, if that is not its address.
            own_of: what a process is told that others are not, by its name.
        """
        self._plan = plan
        self._links = links
        self._addresses = addresses
        self._store_dsn = store_dsn
        self._claim_journals = claim_journals
        self._host_token = host_token
        self._listen = listen or addresses.__getitem__
        self._own_of = own_of
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("DULY_")}
        self._common = {**inherited, **_COMMON, **TIMINGS[plan.profile][0], **own}
        if plan.auth:
            self._common["DULY_AUTH_MODE"] = "required"

    def specs(self) -> list[Spec]:
        """Every process."""
        topology = self._plan.topology
        found = [
            self._service(name, service, (service,))
            for service, names in topology.single_names().items()
            for name in names
        ]
        found += [
            self._service(name, SERVER, (FRONTEND, STORE_CONSUMER, HSC)) for name in topology.server_names()
        ]
        found.append(self._stale_hsc())
        return found + [self._host(name) for name in topology.host_names()]

    def _service(self, name: str, role: str, services: tuple[str, ...]) -> Spec:
        number = name.rpartition("-")[2]
        listen = {_LISTEN[service]: self._listen(f"{service}-{number}") for service in services}
        health = self._addresses[f"{services[-1]}-{number}"]
        environment = {
            **self._common,
            **(self._queue(name) if STORE_CONSUMER in services else self._backend()),
            **listen,
            **self._own_of(name),
            "DULY_STORE_DSN": self._store_dsn(name),
            "DULY_STORE_MIGRATE": "true",
        }
        return Spec(name, role, environment, health)

    def _stale_hsc(self) -> Spec:
        """One more HSC, which writes as another user: each of its writes is one too many."""
        address = self._addresses[STALE_HSC]
        environment = {
            **self._common,
            **self._backend(),
            _LISTEN[HSC]: self._listen(STALE_HSC),
            **self._own_of(STALE_HSC),
            "DULY_STORE_DSN": as_stale_user(self._store_dsn(STALE_HSC)),
        }
        return Spec(STALE_HSC, HSC, environment, address)

    def _host(self, name: str) -> Spec:
        def through(targets: list[str]) -> str:
            return ",".join(self._links.address(f"{name}>{target}") for target in targets)

        topology = self._plan.topology
        environment = {
            **self._common,
            **_OF_HOST,
            **self._queue(name),
            **self._own_of(name),
            _LISTEN[HOST]: self._listen(name),
            "DULY_CONTROLLER_FRONTEND_ADDRESS": through(topology.frontend_names()),
            "DULY_CONTROLLER_HSC_ADDRESS": through(topology.hsc_names()),
            "DULY_CONTROLLER_EXECUTORS": str(topology.executors),
            "DULY_EXECUTOR_CONTAINMENT": self._plan.containment,
            "DULY_RPC_TOKEN_FILE": self._host_token,
            "DULY_EXECUTOR_JOURNAL_FOLDER": str(self._claim_journals / name),
            HOST_NAME: name,
        }
        arguments = (APPLICATION, str(topology.processes), str(SLOTS))
        return Spec(name, HOST, environment, self._addresses[name], arguments, _DRAINING)

    def _backend(self) -> dict[str, str]:
        return {"DULY_QUEUE_BACKEND": self._plan.queue}

    def _queue(self, name: str) -> dict[str, str]:
        """Where a Store Consumer, or a host, finds the queue."""
        if self._plan.queue != "sqs":
            return self._backend()
        endpoint = {"DULY_QUEUE_ENDPOINT_URL": f"http://{self._links.address(f'{name}>queue')}"}
        return {**AWS_ENVIRONMENT, **self._backend(), **endpoint}


def mark(run_id: str, journal: Path, failpoints: Path, files: Path, prefix: str) -> dict[str, str]:
    """What is the same for all processes of one run, and of no other."""
    return {
        MARK: run_id,
        JOURNAL: str(journal),
        **failpoint_engine.environment_of(failpoints),
        "DULY_ATTACHMENTS_FOLDER": str(files),
        "DULY_QUEUE_PREFIX": prefix,
    }
