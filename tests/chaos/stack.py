"""The system under test: five services as real processes, supervised, every connection of theirs through a fault proxy."""

import asyncio
import os
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

from duly_local.moto import AWS_ENVIRONMENT, MotoServer
from duly_local.options import FRONTEND, HSC, STORE_CONSUMER, Ports, StackOptions
from duly_local.ports import LOOPBACK
from duly_local.prefixing import MergedOutput
from duly_local.services import child_specs
from duly_local.specification import ChildSpec, Pace
from duly_local.supervisor import Supervisor
from tests.chaos.faulty_sqs import FaultySqs
from tests.chaos.links import Links
from tests.chaos.plan import Plan
from tests.chaos.ports import free_ports
from tests.chaos.postgres import ChaosPostgres
from tests.chaos.topology import EMBEDDED_TIMING, ENQUEUE_TIMEOUT, SHORT_TIMING
from tests.chaos.tree import MARK

APPLICATION = "tests.chaos.application:app"
JOURNAL = "DULY_CHAOS_JOURNAL"
"""Names the folder that callback processes write their journal to."""
HOST = "DULY_CHAOS_HOST"
"""Tells them on which host they are, as faults name it."""
ROOT = Path(__file__).parents[2]

_PACE = Pace(
    first_delay=timedelta(milliseconds=100),
    longest_delay=timedelta(seconds=1),
    healthy_after=timedelta(seconds=3),
    grace=timedelta(seconds=12),
)
_READY_WITHIN = timedelta(seconds=90)
_SLOTS = 24

_COMMON = {
    "DULY_TELEMETRY_METRICS_LISTEN": "",
    "DULY_STORE_STATEMENT_TIMEOUT": "4s",
    "DULY_STORE_ACQUIRE_TIMEOUT": "3s",
    "DULY_STORE_CONNECT_TIMEOUT": "3s",
    "DULY_RPC_CALL_TIMEOUT": "5s",
    "DULY_RPC_SHUTDOWN_GRACE": "1s",
    "DULY_QUEUE_VISIBILITY": "10s",
    "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
}
_TUNING = {
    "DULY_STORE_CONSUMER_ENQUEUE_TIMEOUT": f"{ENQUEUE_TIMEOUT.total_seconds():g}s",
    "DULY_STORE_CONSUMER_PUT_BACK_DELAY": "500ms",
    "DULY_STORE_CONSUMER_POLL_INTERVAL": "1s",
}
_OF_HOST = {
    "DULY_CONTROLLER_DWELL_MARGIN": "2s",
    "DULY_CONTROLLER_LONGEST_POLL": "5s",
    "DULY_EXECUTOR_POLL_TIMEOUT": "5s",
    "DULY_EXECUTOR_DRAIN_GRACE": "3s",
    "DULY_EXECUTOR_CANCEL_GRACE": "2s",
}


class System:
    """One installation; main thread only."""

    def __init__(self, folder: Path, plan: Plan, template: Path | None = None) -> None:
        self.run_id = uuid4().hex
        self.folder = folder
        self.plan = plan
        self.topology = plan.topology
        self._ports = free_ports()
        self.journal = folder / "journal"
        self.journal.mkdir(parents=True)
        self.services_log = folder / "services.log"
        self.postgres = ChaosPostgres(folder / "data", next(self._ports), template)
        self.links = Links()
        self.sqs: FaultySqs | None = None
        self._moto: MotoServer | None = None
        self.addresses: dict[str, str] = {}
        """Where each service listens itself, by its name."""
        self._supervisor: Supervisor | None = None
        self._log = self.services_log.open("ab", buffering=0)
        self._host_folders: list[Path] = []

    def dsn_through(self, link: str) -> str:
        """The store's DSN by way of a proxy."""
        return self.postgres.dsn.replace(f":{self.postgres.port}/", f":{self.links.port(link)}/")

    async def start(self) -> None:
        """Returns when all is ready.

        Raises:
            DulyError: a part cannot be started.
        """
        self.postgres.start()
        if self.plan.standby:
            self.postgres.add_standby()
        if self.plan.queue == "sqs":
            self._start_sqs()
        topology = self.topology
        for name in (*topology.frontend_names(), *topology.hsc_names(), *topology.store_consumer_names()):
            self.addresses[name] = f"{LOOPBACK}:{next(self._ports)}"
        for name in topology.host_names():
            self.addresses[name] = f"{LOOPBACK}:{next(self._ports)}"
        for link in topology.links():
            target = link.partition(">")[2]
            address = self.addresses.get(target, f"{LOOPBACK}:{self.postgres.port}")
            await self.links.open(link, next(self._ports), address)
        self.postgres.keep_running()
        self._supervisor = Supervisor(self._specs(), MergedOutput(self._log, colour=False), _PACE)
        self._supervisor.start()
        await self._supervisor.wait_until_ready(_READY_WITHIN)

    async def follow_postgres(self) -> None:
        """Lead everybody to where Postgres is now."""
        for name in self.topology.links():
            target = name.partition(">")[2]
            if target == "postgres":
                await self.links.lead(name, f"{LOOPBACK}:{self.postgres.port}")

    async def stop(self) -> None:
        """Stop the services gracefully, and the proxies; Postgres goes on."""
        if self._supervisor is not None:
            await self._supervisor.stop()
        await self.links.close()

    async def stop_postgres(self) -> None:
        """The last thing: what all others stand on."""
        if self.sqs is not None:
            self.sqs.stop()
        if self._moto is not None:
            self._moto.stop()
        await self.postgres.stop()
        self._log.close()

    def pid(self, name: str) -> int | None:
        """The process of a service, or of a host's Controller; None: it is being restarted."""
        assert self._supervisor is not None
        return self._supervisor.pids().get(name)

    def pids(self) -> list[int]:
        """Of all services, and of the hosts' Controllers, that run."""
        return list(self._supervisor.pids().values()) if self._supervisor is not None else []

    async def pid_soon(self, name: str, within: timedelta = timedelta(seconds=5)) -> int | None:
        """The same, waiting a little for a restart."""
        deadline = time.monotonic() + within.total_seconds()
        while (pid := self.pid(name)) is None and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        return pid

    async def wait_until_ready(self) -> None:
        """Until all services are, after faults.

        Raises:
            DulyError: names those that are not.
        """
        assert self._supervisor is not None
        await self._supervisor.wait_until_ready(_READY_WITHIN)

    def _start_sqs(self) -> None:
        self._moto = MotoServer(self.folder / "sqs.log", next(self._ports))
        self._moto.start()
        self.sqs = FaultySqs(self._moto.endpoint_url, self.plan.seed, port=next(self._ports))
        self.sqs.start()
        self.addresses["queue"] = self.sqs.endpoint_url.removeprefix("http://")

    def _of_queue(self, name: str) -> dict[str, str]:
        """Where a Store Consumer, or a host, finds the queue."""
        if self.sqs is None:
            return {"DULY_QUEUE_BACKEND": "store"}
        return {
            **AWS_ENVIRONMENT,
            "DULY_QUEUE_BACKEND": "sqs",
            "DULY_QUEUE_ENDPOINT_URL": f"http://{self.links.address(f'{name}>queue')}",
        }

    def _specs(self) -> list[ChildSpec]:
        topology = self.topology
        specs = []
        bases = (
            (topology.frontend_names(), FRONTEND, {}),
            (topology.hsc_names(), HSC, _TUNING),
            (topology.store_consumer_names(), STORE_CONSUMER, _TUNING),
        )
        for names, base, environment in bases:
            for name in names:
                own = {"DULY_STORE_DSN": self.dsn_through(f"{name}>postgres")}
                if base != FRONTEND:
                    own |= self._of_queue(name)
                specs.append(self._spec(name, base, {**environment, **own}))
        for name in topology.host_names():
            spec = self._spec(name, "worker", {**_OF_HOST, **self._of_host(name)})
            specs.append(replace(spec, depends_on=(*topology.frontend_names(), *topology.hsc_names())))
        return specs

    def _of_host(self, name: str) -> dict[str, str]:
        def through(targets: list[str]) -> str:
            return ",".join(f"{LOOPBACK}:{self.links.port(f'{name}>{target}')}" for target in targets)

        return {
            "DULY_CONTROLLER_FRONTEND_ADDRESS": through(self.topology.frontend_names()),
            "DULY_CONTROLLER_HSC_ADDRESS": through(self.topology.hsc_names()),
            **self._of_queue(name),
            JOURNAL: str(self.journal),
            HOST: name,
            "DULY_EXECUTOR_CONTAINMENT": self.plan.containment,
        }

    def _spec(self, name: str, base: str, environment: dict[str, str]) -> ChildSpec:
        """As the local stack would start it, but under this name and with these settings."""
        names = (FRONTEND, HSC, STORE_CONSUMER, "worker")
        listening = dict.fromkeys(names, int(self.addresses[name].rpartition(":")[2]))
        options = StackOptions(
            data_directory=self.folder / "data",
            dsn=self.postgres.dsn,
            apps=(APPLICATION,),
            executors=self.topology.executors,
            processes=self.topology.processes,
            slots=_SLOTS,
            ports=Ports(listening, listening),
        )
        specs = {spec.name: spec for spec in child_specs(options, self.postgres.dsn, options.ports)}
        timing = EMBEDDED_TIMING if self.plan.peaceful else SHORT_TIMING
        merged = {**specs[base].env, **_COMMON, **timing, MARK: self.run_id, **environment}
        return replace(specs[base], name=name, env=merged)
