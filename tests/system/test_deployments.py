"""What compose.yaml and the manifests of Kubernetes start, started here with the same settings: together they run a task."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import httpx
import psycopg
import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import duly
from duly_core.process.parent import PARENT_PID
from duly_local.certificates import make_authority, make_certificate
from duly_local.ports import free_ports
from duly_local.postgres.embedded import EmbeddedPostgres
from duly_wire.externalscaler import externalscaler_pb2
from duly_wire.externalscaler.externalscaler_pb2_grpc import ExternalScalerStub
from tests.fixtures import manifests
from tests.fixtures.forked_process import ROOT, clean_environment
from tests.fixtures.postgres import FAST, data_folder
from tests.fixtures.slim_host import hide_others
from tests.fixtures.waiting import wait_until

# long: each starts a Postgres and five processes; test_tls_and_roles.py is the shorter form
pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(600)]

DEPLOY = ROOT / "deploy"
PATIENCE = timedelta(seconds=120)
DULY = (sys.executable, "-m", "duly_cli")


@pytest.fixture
def postgres() -> Iterator[EmbeddedPostgres]:
    """A server of its own, with the users of deploy/postgres/users.sql, whose passwords are in `secrets` beside it."""
    with data_folder() as folder:
        secrets = folder / "secrets"
        subprocess.run([DEPLOY / "make-secrets", folder / "made"], check=True)
        shutil.copytree(folder / "made", secrets)
        secrets.chmod(0o755)  # Postgres may run as another user
        (secrets / "console_key").chmod(0o600)  # outside /run/secrets, others may not read it
        users = (DEPLOY / "postgres" / "users.sql").read_text(encoding="utf-8")
        with EmbeddedPostgres(folder / "data", settings=FAST) as server:
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                # the superuser of this server has the name of Duly's owner, and cannot have two
                connection.execute("create role administrator superuser login password 'administrator'")
            admin = make_conninfo(server.dsn, user="administrator", password="administrator")
            with psycopg.connect(admin, autocommit=True) as connection:
                connection.execute("alter role duly rename to first_user")
                connection.execute(users.replace("/run/secrets/", f"{secrets}/"))
            server.secrets = secrets
            yield server


class Deployment:
    """Processes that are started as a manifest says, on this machine."""

    def __init__(self, folder: Path, postgres: EmbeddedPostgres) -> None:
        self._folder = folder
        self._postgres = postgres
        self.secrets: Path = postgres.secrets
        self.addresses: dict[str, str] = {}
        """What the manifest says, such as frontend:7401, by where it is here."""
        self._ports: dict[tuple[str, str], int] = {}
        self._running: list[subprocess.Popen[bytes]] = []
        self.python_path = [str(ROOT)]

    def start(self, name: str, arguments: list[str], settings: Mapping[str, str]) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            self._running.append(
                subprocess.Popen(
                    [*DULY, *arguments],
                    cwd=self._folder,
                    env=self.environment(name, settings),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def run(self, name: str, arguments: list[str], settings: Mapping[str, str]) -> str:
        done = subprocess.run(
            [*DULY, *arguments],
            cwd=self._folder,
            env=self.environment(name, settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{self.logs()}"
        return done.stdout

    def environment(self, name: str, settings: Mapping[str, str]) -> dict[str, str]:
        local = {variable: self._local(name, variable, value) for variable, value in settings.items()}
        if "DULY_STORE_DSN" in settings:  # whatever a manifest says, no password comes from elsewhere
            local["PGPASSFILE"] = str(self._folder / "none")
        ours = {"PYTHONPATH": ":".join(self.python_path), PARENT_PID: str(os.getpid())}
        return clean_environment() | ours | local

    def _local(self, name: str, variable: str, value: str) -> str:
        """Replace what only exists in a container or a cluster: hosts, ports, mounted folders."""
        if variable == "DULY_STORE_DSN":
            here = conninfo_to_dict(self._postgres.dsn)
            user, database = (conninfo_to_dict(value)[part] for part in ("user", "dbname"))
            return make_conninfo("", host=here["host"], port=here["port"], user=user, dbname=database)
        if variable.endswith(("_LISTEN", "_METRICS_PORT", "_KEDA_ADDRESS")):
            port = self.port_of(name, value.rpartition(":")[2])
            return f"127.0.0.1:{port}" if ":" in value else str(port)
        if variable == "PYTHONPATH":
            return ":".join(self.python_path)
        for manifest, local in self.addresses.items():
            value = value.replace(manifest, local)
        return value.replace("/etc/duly/", f"{self._folder}/{name}/").replace(
            "/run/secrets/", f"{self.secrets}/"
        )

    def port_of(self, name: str, port: str) -> int:
        """The port here of a process that has a network of its own there."""
        if (name, port) not in self._ports:
            (self._ports[name, port],) = free_ports(1)
        return self._ports[name, port]

    def serves(self, address: str, **settings: str) -> bool:
        asked = subprocess.run(
            [*DULY, "health", address], env=clean_environment() | settings, capture_output=True, check=False
        )
        for process in self._running:
            assert process.poll() is None, self.logs()
        return asked.returncode == 0

    def page(self, url: str) -> str:
        """A page of the console; empty: it does not serve."""
        for process in self._running:
            assert process.poll() is None, self.logs()
        try:
            return httpx.get(url, timeout=30).text
        except httpx.TransportError:
            return ""

    def logs(self) -> str:
        return "\n".join(f"{path.name}:\n{path.read_text()}" for path in self._folder.glob("*.log"))

    def stop(self) -> None:
        """SIGTERM to all, as an engine does it; the worker first."""
        codes = []
        for process in reversed(self._running):
            process.send_signal(signal.SIGTERM)
            try:
                codes.append(process.wait(60))
            except subprocess.TimeoutExpired:
                process.kill()
                codes.append(process.wait())
        assert codes == [0] * len(codes), f"{codes}\n{self.logs()}"


@pytest.fixture
def deployment(tmp_path: Path, postgres: EmbeddedPostgres) -> Iterator[Deployment]:
    made = Deployment(tmp_path, postgres)
    yield made
    made.stop()


@pytest.mark.parametrize("profile", ["server", "separate"])
def test_what_compose_starts_runs_a_task(deployment: Deployment, tmp_path: Path, profile: str) -> None:
    services = {
        name: service
        for name, service in compose()["services"].items()
        if "build" in service and profile in service.get("profiles", [profile])
    }
    first = "server" if profile == "server" else "frontend"
    hsc = "server" if profile == "server" else "hsc"
    deployment.addresses = {
        "frontend:7401": f"127.0.0.1:{deployment.port_of(first, '7401')}",
        "hsc:7402": f"127.0.0.1:{deployment.port_of(hsc, '7402')}",
    }
    migrate, worker, console = (services.pop(name) for name in ("migrate", "worker", "console"))

    deployment.run("migrate", migrate["command"], migrate["environment"])
    for name, service in services.items():
        listens = {
            "DULY_STORE_CONSUMER_LISTEN": "127.0.0.1:7403"
        }  # its default, which only one may have here
        deployment.start(name, service["command"], listens | service["environment"])
        port = re.fullmatch(r"127\.0\.0\.1:(\d+)", service["healthcheck"]["test"][-1])
        assert port
        address = f"127.0.0.1:{deployment.port_of(name, port[1])}"
        wait_until(lambda address=address: deployment.serves(address), PATIENCE)
    deployment.start("console", console["command"], console["environment"])
    pages = f"http://127.0.0.1:{deployment.port_of('console', '7480')}"
    wait_until(lambda: deployment.page(f"{pages}/healthz") == "ok", PATIENCE)
    deployment.python_path.insert(0, str(hide_others(tmp_path / "slim", "worker")))
    deployment.start("worker", worker["command"], worker["environment"])
    wait_until(lambda: deployment.serves(f"127.0.0.1:{deployment.port_of('worker', '7404')}"), PATIENCE)

    with duly.Client(deployment.addresses["frontend:7401"]) as client:
        receipt = client.schedule("hello.greet", {"name": "Ada"})
        assert client.wait(receipt, PATIENCE).result == {"text": "Hello, Ada!", "attempt": 1}
    assert "hello.greet" in deployment.page(f"{pages}/lambdas")


def compose() -> dict[str, Any]:
    loaded = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def test_what_kubernetes_starts_runs_a_task_with_tls_and_roles(
    deployment: Deployment, tmp_path: Path
) -> None:
    workloads = manifests.workloads()
    servers = ("duly-frontend", "duly-hsc", "duly-store-consumer", "duly-autoscaler")
    mount(tmp_path, deployment.secrets)
    frontend = f"127.0.0.1:{deployment.port_of('duly-frontend', '7401')}"
    deployment.addresses = {
        "dns:///duly-frontend:7401": frontend,
        "dns:///duly-hsc:7402": f"127.0.0.1:{deployment.port_of('duly-hsc', '7402')}",
    }
    migrate, worker = workloads["duly-migrate"], workloads["duly-worker-hello"]

    deployment.run("duly-migrate", migrate.container["args"], migrate.environment)
    deployment.run(
        "duly-migrate", ["db", "operator", "ann", "--to-file", str(tmp_path / "ann")], migrate.environment
    )
    for name in servers:
        deployment.start(name, workloads[name].container["args"], workloads[name].environment)
    for name in servers:  # as the probes ask: without TLS, on a port of its own
        probe = workloads[name].container["readinessProbe"]["grpc"]["port"]
        address = f"127.0.0.1:{deployment.port_of(name, str(probe))}"
        wait_until(lambda address=address: deployment.serves(address), PATIENCE)
    tls = {"DULY_RPC_CA_FILE": str(tmp_path / "authority" / "ca.pem")}
    ann = tls | {"DULY_RPC_TOKEN_FILE": str(tmp_path / "ann"), "DULY_ADDRESS": frontend}
    for role in ("host", "owner"):
        deployment.run("ann", ["grant", "add", "worker-hello", role, "hello.*"], ann)
    deployment.run("ann", ["grant", "add", "shop", "client", "hello.*"], ann)
    token = tmp_path / "duly-worker-hello" / "token"
    token.mkdir(parents=True)
    deployment.run("ann", ["tokens", "create", "worker-hello", "--to-file", str(token / "token")], ann)
    deployment.run("ann", ["tokens", "create", "shop", "--to-file", str(tmp_path / "shop")], ann)
    deployment.python_path.insert(0, str(hide_others(tmp_path / "slim", "worker")))
    deployment.start("duly-worker-hello", worker.container["args"], worker.environment)
    probe = worker.container["readinessProbe"]["grpc"]["port"]
    ready = f"127.0.0.1:{deployment.port_of('duly-worker-hello', str(probe))}"
    wait_until(lambda: deployment.serves(ready), PATIENCE)

    shop = ann | {"DULY_RPC_TOKEN_FILE": str(tmp_path / "shop")}
    said = deployment.run("shop", ["schedule", "hello.greet", '{"name": "Ada"}', "--wait"], shop)
    pool = ["--lambda", "hello.*", "--min", "2", "--max", "9", "--driver", "keda"]
    deployment.run("ann", ["pools", "set", "hello", *pool], ann)
    asked = f"127.0.0.1:{deployment.port_of('duly-autoscaler', '7406')}"
    planned = wait_until(lambda: workers_that_keda_reads(asked, tmp_path / "authority" / "ca.pem"), PATIENCE)

    assert "Hello, Ada!" in said
    assert planned == 2
    # the port of calls has TLS alone
    assert not deployment.serves(frontend)


def workers_that_keda_reads(address: str, authority: Path) -> int:
    """How many workers the pool `hello` is to have; 0: there is no plan yet."""
    request = externalscaler_pb2.GetMetricsRequest(
        scaledObjectRef=externalscaler_pb2.ScaledObjectRef(scalerMetadata={"pool": "hello"})
    )
    credentials = grpc.ssl_channel_credentials(authority.read_bytes())
    with grpc.secure_channel(address, credentials) as channel:
        try:
            answer = ExternalScalerStub(channel).GetMetrics(request, timeout=10)
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE):
                return 0
            raise
    return int(answer.metricValues[0].metricValue)


def mount(folder: Path, passwords: Path) -> None:
    """Make the files that Secrets would be in each pod."""
    authority = folder / "authority"
    authority.mkdir()
    make_authority(authority)
    make_certificate(authority, "server", ["127.0.0.1"])
    users = {
        "duly-migrate": "duly",
        "duly-frontend": "frontend_user",
        "duly-hsc": "hsc_user",
        "duly-store-consumer": "store_consumer_user",
        "duly-autoscaler": "autoscaler_user",
    }
    for name in (*users, "duly-worker-hello"):
        tls = folder / name / "tls"
        tls.mkdir(parents=True)
        shutil.copy(authority / "ca.pem", tls / "ca.crt")
        if name in users:
            shutil.copy(authority / "server.pem", tls / "tls.crt")
            shutil.copy(authority / "server.key", tls / "tls.key")
            (folder / name / "store").mkdir()
            shutil.copy(passwords / users[name], folder / name / "store" / "password")
