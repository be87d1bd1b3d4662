"""The page "Switch on TLS and roles", as its reader runs it: with processes of their own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from duly_local.ports import free_ports
from tests.fixtures.documents import shell_blocks
from tests.fixtures.forked_process import ROOT, clean_environment
from tests.fixtures.waiting import wait_until

# long: tests/integration has those of TLS, tokens and roles
pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(300)]

PATIENCE = timedelta(seconds=60)


class Reader:
    """Somebody who copies the blocks of the page, each into a terminal of its own."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self._folder = folder
        frontend, hsc, consumer, health = free_ports(4)
        self.health = f"127.0.0.1:{health}"
        self.frontend = f"127.0.0.1:{frontend}"
        self._environment = clean_environment() | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "DULY_STORE_DSN": dsn,
            "DULY_FRONTEND_LISTEN": self.frontend,
            "DULY_HSC_LISTEN": f"127.0.0.1:{hsc}",
            "DULY_STORE_CONSUMER_LISTEN": f"127.0.0.1:{consumer}",
            "DULY_ADDRESS": self.frontend,
            "DULY_CONTROLLER_FRONTEND_ADDRESS": self.frontend,
            "DULY_CONTROLLER_HSC_ADDRESS": f"127.0.0.1:{hsc}",
            "DULY_CONTROLLER_HEALTH_LISTEN": self.health,
            "DULY_TIMING_PROFILE": "embedded",
        }
        self._running: list[subprocess.Popen[bytes]] = []

    def run(self, block: str, *, code: int = 0) -> str:
        """Run a block to its end; return what it wrote."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == code, f"{block}\n{done.stdout}\n{self.logs()}"
        return done.stdout

    def start(self, block: str, name: str) -> None:
        """Run a block whose last command goes on."""
        *before, last = block.rstrip().splitlines()
        with (self._folder / f"{name}.log").open("wb") as log:
            self._running.append(
                subprocess.Popen(
                    ["bash", "-euo", "pipefail", "-c", "\n".join([*before, f"exec {last}"])],
                    cwd=self._folder,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def logs(self) -> str:
        return "\n".join(f"{path.name}:\n{path.read_text()}" for path in self._folder.glob("*.log"))

    def succeeds(self, block: str) -> bool:
        try:
            self.run(block)
        except AssertionError:
            return False
        return True

    def serves(self, address: str) -> bool:
        asked = subprocess.run(
            ["duly", "health", address],
            cwd=self._folder,
            env=self._environment | {"DULY_RPC_CA_FILE": "certs/ca.pem"},
            capture_output=True,
            check=False,
        )
        return asked.returncode == 0

    def stop(self) -> None:
        for process in reversed(self._running):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def reader(tmp_path: Path, dsn: str) -> Iterator[Reader]:
    made = Reader(tmp_path, dsn)
    yield made
    made.stop()


def test_the_page_leads_from_nothing_to_a_task_that_ran_under_tls_and_roles(reader: Reader) -> None:
    prepare, server, operator, worker, client, audit = shell_blocks("operators/tls-and-roles.md")

    reader.run(prepare)
    reader.start(server, "server")
    wait_until(lambda: reader.serves(reader.frontend), PATIENCE)
    assert "operator of *" in reader.run(operator)
    reader.start(worker, "worker")
    wait_until(lambda: reader.serves(reader.health), PATIENCE)

    assert "Hello, Ada!" in reader.run(client)
    said = reader.run(audit)
    assert "AddGrants" in said
    assert "RegisterLambdas" in said

    as_shop = client.rpartition("duly schedule")[0]
    plain = "export DULY_RPC_TOKEN_FILE=shop.token\n"
    nobody = "export DULY_RPC_CA_FILE=certs/ca.pem\n"
    assert "DULY_RPC_CA_FILE" in reader.run(f"{plain}duly whoami", code=1)
    assert "DULY_RPC_TOKEN_FILE" in reader.run(f"{nobody}duly whoami", code=1)
    assert "may not" in reader.run(f"{as_shop}duly settings set store_consumer.poll_interval 1s", code=1)
    assert json.loads(reader.run(f"{as_shop}duly whoami --json"))["principal"] == "shop"


SERVER = """
export DULY_RPC_CERT_FILE=certs/server.pem DULY_RPC_KEY_FILE=certs/server.key DULY_RPC_CA_FILE=certs/ca.pem
export DULY_RPC_CLIENT_CERTIFICATES=required DULY_AUTH_MODE=required
duly server
"""


def certificate_of(principal: str) -> str:
    return f"""
export DULY_RPC_CERT_FILE=certs/{principal}.pem DULY_RPC_KEY_FILE=certs/{principal}.key
export DULY_RPC_CA_FILE=certs/ca.pem
"""


def test_certificates_alone_say_who_calls(reader: Reader) -> None:
    reader.run(
        "duly certs certs --server 127.0.0.1 --client ann --client worker-1 --client shop; duly db operator ann"
    )
    as_ann, as_worker, as_shop = map(certificate_of, ("ann", "worker-1", "shop"))
    reader.start(SERVER, "server")

    def ann_is_known() -> bool:
        return reader.succeeds(f"{as_ann}duly whoami")

    wait_until(ann_is_known, PATIENCE)
    reader.run(
        f"{as_ann}for role in host owner; do duly grant add worker-1 $role 'hello.*'; done\n"
        "duly grant add shop client 'hello.*'"
    )
    reader.start(f"{as_worker}duly worker examples.hello:app", "worker")
    wait_until(lambda: reader.serves(reader.health), PATIENCE)

    ran = reader.run(f'{as_shop}duly schedule hello.greet \'{{"name": "Ada"}}\' --wait')

    assert "Hello, Ada!" in ran
    nobody = "export DULY_RPC_CA_FILE=certs/ca.pem\n"
    assert "set DULY_RPC_CERT_FILE" in reader.run(f"{nobody}duly whoami", code=1)
