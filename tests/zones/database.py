"""Postgres under Patroni in zones a and b, and etcd in all three, from the system's packages."""

import asyncio
import json
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psycopg

from duly_core.errors import DulyError
from duly_local.ports import free_port
from tests.chaos.postgres import prepare
from tests.fixtures.namespaces import FOLDER, enter
from tests.zones.network import ZONES, Network

WITH_POSTGRES = ("a", "b")
USER = "postgres"
_CLIENTS, _PEERS, _REST, _POSTGRES = 2379, 2380, 8008, 5432
_SCOPE = "duly"
_BINARIES = Path("/usr/lib/postgresql")
_LOOK_EVERY_S = 0.1
_WELL = ("running", "streaming")
_READY_WITHIN = timedelta(seconds=60)
PROGRAMS = ("/usr/bin/patroni", "/usr/bin/etcd")

# A failover takes the ttl, at most, a look, and the promotion. Production has 30, 10 and 10 (docs/zones.md).
SETTINGS: Mapping[str, object] = {
    "ttl": 5,
    "loop_wait": 1,
    "retry_timeout": 1,
    "maximum_lag_on_failover": 1_048_576,
    "primary_start_timeout": 0,  # a primary that crashed is not waited for
    # Not strict: while a standby's zone is away the primary writes alone. Nothing can be lost by that, for Patroni promotes
    # only who has all, as the key of the synchronous standby says, which only a primary with a quorum of etcd may change.
    "synchronous_mode": True,
    "synchronous_mode_strict": False,
    "postgresql": {
        "use_pg_rewind": True,
        "use_slots": True,
        "parameters": {
            "max_connections": 200,
            "shared_buffers": "32MB",
            "wal_level": "replica",
            "hot_standby": "on",
            "wal_log_hints": "on",
            "max_wal_senders": 10,
            "max_replication_slots": 10,
            "wal_keep_size": "256MB",
            # a standby that is cut off is noticed
            "wal_sender_timeout": "3s",
            "wal_receiver_timeout": "3s",
            "fsync": "off",  # processes are killed, machines are not
            "jit": "off",
            "log_min_messages": "log",
        },
    },
}


def binaries() -> Path | None:
    """The newest Postgres of the system that Patroni 3.0 knows; None: there is none."""
    known = [each for each in _BINARIES.glob("*/bin") if (each / "initdb").exists()]
    return max(known, key=lambda each: float(each.parent.name), default=None)


def make_template(folder: Path) -> None:
    """Leave a data directory with the schema of a run there, and nothing running."""
    programs = binaries()
    assert programs is not None
    _give(folder)
    data, port = folder / "data", free_port()
    _as_postgres(
        [str(programs / "initdb"), "-D", str(data), "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C"]
    )
    (data / "pg_hba.conf").write_text(
        "local all all trust\nhost all all 0.0.0.0/0 trust\nhost replication all 0.0.0.0/0 trust\n", "ascii"
    )
    options = f"-c port={port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
    control = [str(programs / "pg_ctl"), "-D", str(data), "-w", "-l", str(folder / "log")]
    _as_postgres([*control, "-o", options, "start"])
    try:
        with psycopg.connect(f"host=127.0.0.1 port={port} user=postgres", autocommit=True) as connection:
            connection.execute("create role duly superuser login")
            connection.execute("create role replicator replication login")
            connection.execute("create database duly owner duly")
        prepare(f"host=127.0.0.1 port={port} user=duly dbname=duly")
    finally:
        _as_postgres([*control, "-m", "fast", "stop"])


class ZonedPostgres:
    """A cluster: a primary, a synchronous standby, and who decides which is which."""

    def __init__(self, network: Network, folder: Path, template: Path) -> None:
        self._network = network
        self._folder = folder
        self._template = template
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.lifecycle = asyncio.Lock()
        """Held by who does something to it."""

    @property
    def dsn(self) -> str:
        """The DSN of the primary, through the back door."""
        hosts = ",".join(self._network.back_door(zone) for zone in WITH_POSTGRES)
        return _dsn(hosts)

    @property
    def dsn_of_services(self) -> str:
        """As an operator writes it down."""
        return _dsn(",".join(self._network.address(zone) for zone in WITH_POSTGRES))

    def start(self) -> None:
        """Begin with the template in both zones; blocks until there is a primary with a synchronous standby."""
        for zone in ZONES:
            self._start_etcd(zone)
        settings = json.dumps(SETTINGS)
        url = f"http://{self._network.back_door('a')}:{_CLIENTS}/v2/keys/service/{_SCOPE}/config"
        put = [
            "curl",
            "-s",
            "--fail",
            "--max-time",
            "2",
            "-X",
            "PUT",
            url,
            "--data-urlencode",
            f"value={settings}",
        ]
        self._until(
            lambda: not subprocess.run(put, capture_output=True, check=False).returncode,
            "etcd takes no value",
        )
        for zone in WITH_POSTGRES:
            folder = self._folder / zone
            shutil.copytree(self._template / "data", folder / "data")
            _give(folder)
            self._write_patroni(zone)
            self._start_patroni(zone)
            if zone == WITH_POSTGRES[0]:  # the first becomes the primary
                self._until(lambda: self.leader() is not None, "there is no primary")
        self._until(self.is_whole, "there is no synchronous standby")

    def start_zone(self, zone: str) -> None:
        """What is missing there, after it was killed."""
        if not self._runs(f"etcd-{zone}"):
            self._start_etcd(zone)
        if zone in WITH_POSTGRES and not self._runs(f"patroni-{zone}"):
            self._start_patroni(zone)

    def end_zone(self, zone: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Bury what was killed there."""
        for name in (f"patroni-{zone}", f"etcd-{zone}"):
            process = self._processes.pop(name, None)
            if process is not None:
                process.send_signal(number)
                process.wait()

    def kill_patroni(self, zone: str) -> None:
        """SIGKILL to Patroni alone."""
        process = self._processes.pop(f"patroni-{zone}", None)
        if process is not None:
            process.kill()
            process.wait()

    def postmaster(self, zone: str) -> int | None:
        """The process of a zone's Postgres."""
        with suppress(OSError, ValueError):
            pid = int((self._folder / zone / "data/postmaster.pid").read_text().split()[0])
            return pid if pid in self._network.pids(zone) else None
        return None

    def status(self) -> list[dict[str, object]]:
        """The members, as any Patroni sees them; empty: none answers."""
        for zone in WITH_POSTGRES:
            answer = self._ask(zone, "GET", "/cluster")
            if answer:
                members: list[dict[str, object]] = json.loads(answer)["members"]
                return members
        return []

    def leader(self) -> str | None:
        """The zone of the primary."""
        for zone in WITH_POSTGRES:
            with suppress(psycopg.Error), psycopg.connect(_dsn(self._network.back_door(zone), 1)):
                return zone
        return None

    def is_whole(self) -> bool:
        """Whether there is a primary, and a standby that may take over, as Patroni sees it."""
        roles = sorted(str(member["role"]) for member in self.status() if member["state"] in _WELL)
        return roles == ["leader", "sync_standby"] and self.leader() is not None

    def switch_over(self) -> str:
        """Ask Patroni for the other primary; what became of it."""
        zone = self.leader()
        if zone is None:
            return ""
        (other,) = set(WITH_POSTGRES) - {zone}
        answer = self._ask(zone, "POST", "/switchover", {"leader": zone, "candidate": other})
        return f"from {zone} to {other}: {answer.strip()}" if answer else ""

    async def wait_until_up(self, within: timedelta = timedelta(seconds=60)) -> None:
        """Until it can be written to, on both servers.

        Raises:
            TimeoutError: it cannot; says what Patroni sees.
        """
        try:
            async with asyncio.timeout(within.total_seconds()):
                while not await asyncio.to_thread(self.is_whole):
                    await asyncio.sleep(_LOOK_EVERY_S)
        except TimeoutError:
            seen = await asyncio.to_thread(self.status)
            raise TimeoutError(
                f"no standby may take over after {within.total_seconds():g} s: {seen}"
            ) from None

    async def wait_until_alone(self, within: timedelta) -> None:
        """Until no session of Duly is left.

        Raises:
            TimeoutError: some are.
        """
        async with asyncio.timeout(within.total_seconds()), await self.connect() as connection:
            while True:
                cursor = await connection.execute(
                    "select from pg_stat_activity where datname = current_database() and application_name <> 'chaos' limit 1"
                )
                if await cursor.fetchone() is None:
                    return
                await asyncio.sleep(_LOOK_EVERY_S)

    async def connect(self) -> psycopg.AsyncConnection:
        """A connection of the run's own, by the back door."""
        return await psycopg.AsyncConnection.connect(
            self.dsn,
            autocommit=True,
            application_name="chaos",
            options="-c statement_timeout=10000",
        )

    def stop(self) -> None:
        """End it all."""
        for process in self._processes.values():
            process.kill()
            process.wait()
        self._processes.clear()

    def _until(self, question: object, otherwise: str) -> None:
        until = time.monotonic() + _READY_WITHIN.total_seconds()
        while not question():  # type: ignore[operator]
            if time.monotonic() > until:
                raise DulyError(f"{otherwise} after {_READY_WITHIN.total_seconds():g} s: see {self._folder}")
            time.sleep(_LOOK_EVERY_S)

    def _runs(self, name: str) -> bool:
        process = self._processes.get(name)
        return process is not None and process.poll() is None

    def _start_etcd(self, zone: str) -> None:
        folder = self._folder / f"etcd-{zone}"
        folder.mkdir(exist_ok=True)
        _give(folder)
        address = self._network.address(zone)
        cluster = ",".join(f"{each}=http://{self._network.address(each)}:{_PEERS}" for each in ZONES)
        options = {
            "name": zone,
            "data-dir": folder / "data",
            "listen-client-urls": f"http://0.0.0.0:{_CLIENTS}",
            "advertise-client-urls": f"http://{address}:{_CLIENTS}",
            "listen-peer-urls": f"http://0.0.0.0:{_PEERS}",
            "initial-advertise-peer-urls": f"http://{address}:{_PEERS}",
            "initial-cluster": cluster,
            "initial-cluster-state": "new",
            "heartbeat-interval": 100,
            "election-timeout": 700,
            "enable-v2": "true",
        }
        arguments = [f"--{name}={value}" for name, value in options.items()]
        self._launch(zone, f"etcd-{zone}", ["/usr/bin/etcd", *arguments])

    def _write_patroni(self, zone: str) -> None:
        address, folder = self._network.address(zone), self._folder / zone
        settings = {
            "scope": _SCOPE,
            "name": zone,
            "restapi": {"listen": f"0.0.0.0:{_REST}", "connect_address": f"{address}:{_REST}"},
            # The older protocol: with the newer one Patroni 3.0 trusts a cache. When a cut ended as the other server was promoted,
            # it promoted the former primary once more, to a timeline of the same number.
            "etcd": {"hosts": [f"{self._network.address(each)}:{_CLIENTS}" for each in ZONES]},
            "postgresql": {
                "listen": f"0.0.0.0:{_POSTGRES}",
                "connect_address": f"{address}:{_POSTGRES}",
                "data_dir": str(folder / "data"),
                "bin_dir": str(binaries()),
                "pgpass": str(folder / "pgpass"),
                "authentication": {
                    "superuser": {"username": "postgres"},
                    "replication": {"username": "replicator"},
                    "rewind": {"username": "postgres"},
                },
                "parameters": {"unix_socket_directories": str(folder)},
            },
        }
        (folder / "patroni.yml").write_text(json.dumps(settings), "ascii")  # which is YAML

    def _start_patroni(self, zone: str) -> None:
        arguments = ["/usr/bin/patroni", str(self._folder / zone / "patroni.yml")]
        self._launch(zone, f"patroni-{zone}", arguments)

    def _launch(self, zone: str, name: str, command: Sequence[str]) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                self._inside(
                    zone, ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups", *command]
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(self._folder)},
                start_new_session=True,
            )

    def _inside(self, zone: str, command: Sequence[str]) -> list[str]:
        return ["nsenter", f"--net={FOLDER / self._network.namespace(zone)}", *command]

    def _ask(self, zone: str, method: str, path: str, body: object = None) -> str:
        """Ask Patroni through the back door; empty: no answer."""
        url = f"http://{self._network.back_door(zone)}:{_REST}{path}"
        command = ["curl", "-s", "--max-time", "6", "-X", method, url]
        command += ["-d", json.dumps(body), "-H", "Content-Type: application/json"] if body else []
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _dsn(hosts: str, connect_timeout: int | None = None) -> str:
    timeout = f" connect_timeout={connect_timeout}" if connect_timeout else ""
    return f"host={hosts} port={_POSTGRES} user=duly dbname=duly target_session_attrs=read-write{timeout}"


def _as_postgres(command: Sequence[str]) -> None:
    done = subprocess.run(
        ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups", *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise DulyError(f"{command[0]} failed: {done.stderr.strip() or done.stdout.strip()}")


def _give(folder: Path) -> None:
    """Make the user of Postgres the owner: Postgres refuses a folder with another owner or mode."""
    user = pwd.getpwnam(USER)
    folder.mkdir(exist_ok=True, parents=True)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user.pw_uid, user.pw_gid)
    data = folder / "data"
    if data.is_dir():
        data.chmod(0o700)


__all__ = ["PROGRAMS", "SETTINGS", "WITH_POSTGRES", "ZonedPostgres", "binaries", "enter", "make_template"]
