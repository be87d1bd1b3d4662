"""The system under test: services as real processes, kept alive, every connection of theirs through a fault proxy."""

from datetime import timedelta
from pathlib import Path
from uuid import uuid4

from duly_local.moto import MotoServer
from duly_local.ports import LOOPBACK
from tests.chaos.access import HOST, Tokens
from tests.chaos.environment import Environments, mark
from tests.chaos.faulty_sqs import FaultySqs
from tests.chaos.fork_client import ForkServer
from tests.chaos.links import Links
from tests.chaos.mutations import MUTATIONS
from tests.chaos.plan import Plan
from tests.chaos.ports import free_ports
from tests.chaos.postgres import ChaosPostgres, SharedPostgres
from tests.chaos.process_keeper import ProcessKeepers
from tests.chaos.shared import Shared
from tests.chaos.topology import STALE_HSC

_READY_WITHIN = timedelta(seconds=90)


class System:
    """One installation; main thread only."""

    def __init__(self, folder: Path, plan: Plan, fork_server: ForkServer, shared: Shared) -> None:
        """Make one; `shared`: what the campaign has for all of its runs."""
        self.run_id = uuid4().hex
        self.folder = folder
        self.plan = plan
        self.topology = plan.topology
        self.fork_server = fork_server
        self.journal = folder / "journal"
        self.journal.mkdir(parents=True)
        self.failpoints = folder / "failpoints"
        self.failpoints.mkdir()
        self.files = folder / "files"
        self.claim_journals = folder / "claim-journals"
        for name in plan.topology.host_names():
            (self.claim_journals / name).mkdir(parents=True, mode=0o700)
        self._ports = free_ports()
        self.postgres: ChaosPostgres
        if plan.own_postgres or not shared.dsn:
            self.postgres = ChaosPostgres(folder / "data", next(self._ports), shared.template)
        else:
            self.postgres = SharedPostgres(shared.dsn, f"chaos_{self.run_id}")
        self.links = Links()
        self.tokens = Tokens(folder / "tokens", needed=plan.auth)
        self.sqs: FaultySqs | None = None
        self._shared_sqs = shared.sqs
        self._moto: MotoServer | None = None
        self.addresses: dict[str, str] = {}
        """Where each service listens itself, by its name."""
        self.clock_moves: list[tuple[int, int]] = []
        """When the store's clock was moved: before and after, each."""
        self._keepers: ProcessKeepers | None = None

    def dsn_through(self, name: str) -> str:
        """The store's DSN by way of a process's proxy."""
        port = self.links.port(f"{name}>postgres")
        return self.postgres.dsn.replace(f":{self.postgres.port}/", f":{port}/")

    def frontends(self) -> list[str]:
        """The addresses that clients are told."""
        return [self.links.address(f"client>{name}") for name in self.topology.frontend_names()]

    async def start(self) -> None:
        """Returns when all is ready.

        Raises:
            DulyError: a part cannot be started.
        """
        self.postgres.start()
        if self.plan.mutation:
            MUTATIONS[self.plan.mutation].plant_in(self.postgres.dsn)
        self.tokens.make(self.postgres.dsn)
        if self.plan.standby:
            self.postgres.add_standby()
        if self.plan.queue == "sqs":
            self._start_sqs()
        topology = self.topology
        services = (topology.frontend_names(), topology.hsc_names(), topology.store_consumer_names())
        for name in (*(each for names in services for each in names), STALE_HSC, *topology.host_names()):
            self.addresses[name] = f"{LOOPBACK}:{next(self._ports)}"
        for link in self._links_of_all():
            target = link.partition(">")[2]
            address = self.addresses.get(target, f"{LOOPBACK}:{self.postgres.port}")
            await self.links.open(link, next(self._ports), address)
        self.postgres.keep_running()
        own = mark(self.run_id, self.journal, self.failpoints, self.files, f"chaos-{self.run_id[:12]}")
        specs = Environments(
            self.plan,
            self.links,
            self.addresses,
            self.dsn_through,
            own,
            self.claim_journals,
            self.tokens.file(HOST),
        ).specs()
        self._keepers = ProcessKeepers(specs, self.fork_server, self.folder / "logs")
        self._keepers.start()
        await self.wait_until_ready()

    async def follow_postgres(self) -> None:
        """Lead everybody to where Postgres is now."""
        for name in self._links_of_all():
            if name.endswith(">postgres"):
                await self.links.lead(name, f"{LOOPBACK}:{self.postgres.port}")

    def _links_of_all(self) -> list[str]:
        return [*self.topology.links(), f"{STALE_HSC}>postgres"]

    async def stop(self) -> None:
        """Stop the services gracefully, and the proxies; Postgres goes on."""
        if self._keepers is not None:
            await self._keepers.stop()
        await self.links.close()

    async def stop_postgres(self) -> None:
        """The last thing: what all others stand on."""
        if self.sqs is not None:
            self.sqs.stop()
        if self._moto is not None:
            self._moto.stop()
        await self.postgres.stop()

    def pid(self, name: str) -> int | None:
        """The process of a service, or of a host's Controller; None: it is being restarted."""
        assert self._keepers is not None
        return self._keepers.pids().get(name)

    def pids(self) -> list[int]:
        """Of all services, and of the hosts' Controllers, that run."""
        return list(self._keepers.pids().values()) if self._keepers is not None else []

    def hold_down(self, name: str) -> None:
        """Do not start it again when it ends, until `let_up`."""
        assert self._keepers is not None
        self._keepers.hold_down(name)

    def let_up(self, name: str) -> None:
        assert self._keepers is not None
        self._keepers.let_up(name)

    async def wait_until_ready(self) -> None:
        """Until all services are, after faults.

        Raises:
            DulyError: names those that are not.
        """
        assert self._keepers is not None
        await self._keepers.wait_until_ready(_READY_WITHIN)

    def _start_sqs(self) -> None:
        endpoint = self._shared_sqs
        if not endpoint:
            self._moto = MotoServer(self.folder / "sqs.log", next(self._ports))
            self._moto.start()
            endpoint = self._moto.endpoint_url
        self.sqs = FaultySqs(endpoint, self.plan.seed, port=next(self._ports))
        self.sqs.start()
        self.addresses["queue"] = self.sqs.endpoint_url.removeprefix("http://")
