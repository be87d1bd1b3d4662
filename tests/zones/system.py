"""Duly in three zones: a server and hosts in each, Postgres in two, the client outside; real processes in network namespaces."""

import asyncio
import os
import signal
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import psycopg

from duly_local.moto import MotoServer
from tests.chaos.access import Tokens
from tests.chaos.environment import Environments, mark
from tests.chaos.faulty_sqs import FaultySqs
from tests.chaos.fork_client import ForkServer
from tests.chaos.plan import Plan
from tests.chaos.process_keeper import ProcessKeepers
from tests.chaos.topology import STALE_HSC
from tests.fixtures.namespaces import NAMESPACE, Inside
from tests.zones.database import ZonedPostgres
from tests.zones.network import QUEUE, ZONES, Network

_READY_WITHIN = timedelta(seconds=90)
_NOTICED_WITHIN = timedelta(seconds=30)
"""Postgres asks its clients for a sign of life: 10 s, and three times 5 s."""
# As an operator has them; runs of chaos have shorter ones.
_WAITS = {
    "DULY_STORE_STATEMENT_TIMEOUT": "8s",
    "DULY_STORE_ACQUIRE_TIMEOUT": "5s",
    "DULY_STORE_CONNECT_TIMEOUT": "5s",
    "DULY_RPC_CALL_TIMEOUT": "10s",
}
_PORTS = {"frontend": 7401, "hsc": 7402, "store-consumer": 7403, "stale-hsc": 7409, "host": 7500, QUEUE: 7600}


def zone_of(name: str) -> str:
    """Where a process is: server-1 and host-1 in the first zone, host-4 again, and the HSC of stale calls in the last."""
    if name == STALE_HSC:
        return ZONES[-1]
    return ZONES[(int(name.rpartition("-")[2]) - 1) % len(ZONES)]


def port_of(name: str) -> int:
    """Where it listens in its zone."""
    if name == STALE_HSC:
        return _PORTS[name]
    kind, _, number = name.rpartition("-")
    return _PORTS[kind] + (int(number) if kind == "host" else 0)


class ZonedLinks:
    """Addresses with their zones, as an operator writes them, in place of proxies: the network itself misbehaves."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def address(self, link: str) -> str:
        target = link.partition(">")[2]
        if target == QUEUE:  # one of all zones
            return f"{self._network.address(QUEUE)}:{_PORTS[QUEUE]}"
        zone = zone_of(target)
        return f"{zone}={self._network.address(zone)}:{port_of(target)}"

    async def heal(self) -> None:
        self._network.heal()


class ZonedSystem:
    """One installation. It has the interface of `tests.chaos.stack.System`."""

    def __init__(
        self, folder: Path, plan: Plan, fork_server: ForkServer, network: Network, template: Path
    ) -> None:
        self.run_id = uuid4().hex
        self.folder = folder
        self.plan = plan
        self.topology = plan.topology
        self.network = network
        self.journal = folder / "journal"
        self.journal.mkdir(parents=True)
        self.failpoints = folder / "failpoints"
        self.failpoints.mkdir()
        self.files = folder / "files"
        self.claim_journals = folder / "claim-journals"
        for name in plan.topology.host_names():
            (self.claim_journals / name).mkdir(parents=True, mode=0o700)
        self.postgres = ZonedPostgres(network, folder, template)
        self.links = ZonedLinks(network)
        self.tokens = Tokens(folder / "tokens", needed=False)
        self.addresses: dict[str, str] = {}
        """Where each process is found by the runner, by its name."""
        self.clock_moves: list[tuple[int, int]] = []
        self.sqs: FaultySqs | None = None
        self._moto: MotoServer | None = None
        self._fork_server = fork_server
        self._keepers: ProcessKeepers | None = None

    def frontends(self) -> list[str]:
        """What the client is told: all Frontends, each with its zone."""
        return [",".join(self.links.address(f"client>{name}") for name in self.topology.frontend_names())]

    async def start(self) -> None:
        """Returns when all is ready, but the hosts that are to join.

        Raises:
            DulyError: a part cannot be started.
        """
        await asyncio.to_thread(self.postgres.start)
        if self.plan.queue == "sqs":
            self._start_sqs()
        topology = self.topology
        services = (topology.frontend_names(), topology.hsc_names(), topology.store_consumer_names())
        for name in (*(each for names in services for each in names), STALE_HSC, *topology.host_names()):
            self.addresses[name] = f"{self.network.back_door(zone_of(name))}:{port_of(name)}"
        specs = Environments(
            self.plan,
            self.links,  # type: ignore[arg-type]
            self.addresses,
            lambda _: self.postgres.dsn_of_services,
            mark(self.run_id, self.journal, self.failpoints, self.files, f"zones-{self.run_id[:12]}"),
            self.claim_journals,
            "",
            listen=lambda name: f"0.0.0.0:{port_of(name)}",
            own_of=self._own_of,
        ).specs()
        self._keepers = ProcessKeepers(specs, self._fork_server, self.folder / "logs")
        for name in self.joining():
            self._keepers.hold_down(name)
        self._keepers.start()
        await self.wait_until_ready()

    def _start_sqs(self) -> None:
        """Outside of the zones: what is sent to its address goes through the router, and its own way to moto does not."""
        self._moto = MotoServer(self.folder / "sqs.log")
        self._moto.start()
        with Inside(self.network.namespace(QUEUE)):
            self.sqs = FaultySqs(
                self._moto.endpoint_url, self.plan.seed, port=_PORTS[QUEUE], host=self.network.address(QUEUE)
            )
        self.sqs.start()

    def joining(self) -> list[str]:
        """Hosts beyond the first of each zone."""
        return self.topology.host_names()[len(ZONES) :]

    def _own_of(self, name: str) -> dict[str, str]:
        zone = zone_of(name)
        return {
            **_WAITS,
            NAMESPACE: self.network.namespace(zone),
            "DULY_RPC_ZONE": zone,
            "DULY_RPC_ALLOW_PLAINTEXT": "true",
        }

    def in_zone(self, zone: str) -> list[str]:
        """The processes of Duly that are kept there."""
        topology = self.topology
        names = (*topology.server_names(), STALE_HSC, *topology.host_names())
        return [name for name in names if zone_of(name) == zone]

    async def kill_zone(self, zone: str) -> None:
        """All of it at once; nothing is started there until `revive_zone`."""
        for name in self.in_zone(zone):
            self.hold_down(name)
        pids = await asyncio.to_thread(self.network.pids, zone)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(self.postgres.end_zone, zone)

    async def revive_zone(self, zone: str) -> None:
        """Start it all again."""
        await asyncio.to_thread(self.postgres.start_zone, zone)
        for name in self.in_zone(zone):
            self.let_up(name)

    async def stop(self) -> None:
        """Stop the services gracefully; Postgres goes on, and ends the sessions of those that went without a word."""
        if self._keepers is not None:
            await self._keepers.stop()
            with suppress(TimeoutError, psycopg.Error):
                await self.postgres.wait_until_alone(_NOTICED_WITHIN)

    async def stop_postgres(self) -> None:
        """The last thing: what all others stand on."""
        if self.sqs is not None:
            self.sqs.stop()
        if self._moto is not None:
            self._moto.stop()
        await asyncio.to_thread(self.postgres.stop)

    def pid(self, name: str) -> int | None:
        """The process of a server, or of a host's Controller; None: it is away."""
        assert self._keepers is not None
        return self._keepers.pids().get(name)

    def pids(self) -> list[int]:
        """Of all servers, and of the hosts' Controllers, that run."""
        return list(self._keepers.pids().values()) if self._keepers is not None else []

    def hold_down(self, name: str) -> None:
        """Do not start it again when it ends, until `let_up`."""
        assert self._keepers is not None
        self._keepers.hold_down(name)

    def let_up(self, name: str) -> None:
        assert self._keepers is not None
        self._keepers.let_up(name)

    async def wait_until_ready(self) -> None:
        """Until all are, after faults.

        Raises:
            DulyError: names those that are not.
        """
        assert self._keepers is not None
        await self._keepers.wait_until_ready(_READY_WITHIN)
