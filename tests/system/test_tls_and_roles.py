"""The page "Switch on TLS and roles", as its reader runs it: with processes of their own."""

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from duly_core.postgres.schema.migrate import migrate
from duly_local.ports import free_ports
from tests.fixtures.documents import shell_blocks
from tests.fixtures.page_reader import PATIENCE, PageReader
from tests.fixtures.waiting import wait_until

# long: tests/access has those of TLS, tokens and roles
pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(300)]


class Reader(PageReader):
    """Somebody who has all of it on one machine."""

    def __init__(self, folder: Path, dsn: str) -> None:
        frontend, hsc, consumer, health = free_ports(4)
        self.health = f"127.0.0.1:{health}"
        self.frontend = f"127.0.0.1:{frontend}"
        settings = {
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
        super().__init__(folder, settings)

    def serves(self, address: str) -> bool:
        """Whether a process answers that it serves."""
        return self.succeeds(f"DULY_RPC_CA_FILE=certs/ca.pem duly health {address}")

    def wait_for_role(self, terminal: str, role: str) -> None:
        """Wait until the caller of this terminal has a role: a grant is in force within 2 s."""
        wait_until(lambda: role in self.run(f"{terminal}\nduly whoami || true"), PATIENCE)


@pytest.fixture
def reader(tmp_path: Path, dsn: str) -> Iterator[Reader]:
    with psycopg.connect(dsn, autocommit=True) as connection:  # the tests' own constraints are another schema
        connection.execute("drop schema public cascade; create schema public")
    migrate(dsn)
    made = Reader(tmp_path, dsn)
    yield made
    made.stop()


def test_the_page_leads_from_nothing_to_a_task_that_ran_under_tls_and_roles(reader: Reader) -> None:
    prepare, server, operator, worker, client, audit = shell_blocks("operators/tls-and-roles.md")

    reader.run(prepare)
    reader.start(server, "server")
    wait_until(lambda: reader.serves(reader.frontend), PATIENCE)
    assert "operator of *" in reader.run(operator)
    reader.wait_for_role(worker.rpartition("duly worker")[0], "host of hello.*")
    reader.start(worker, "worker")
    wait_until(lambda: reader.serves(reader.health), PATIENCE)

    as_shop = client.rpartition("duly schedule")[0]
    reader.wait_for_role(as_shop, "client of hello.*")
    assert "Hello, Ada!" in reader.run(client)
    said = reader.run(audit)
    assert "AddGrants" in said
    assert "RegisterLambdas" in said

    plain = "export DULY_RPC_TOKEN_FILE=shop.token\n"
    nobody = "export DULY_RPC_CA_FILE=certs/ca.pem\n"
    assert "DULY_RPC_CA_FILE" in reader.run(f"{plain}duly whoami", code=69)
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
        f"{as_ann}for role in host owner; do duly grants add worker-1 $role 'hello.*'; done\n"
        "duly grants add shop client 'hello.*'"
    )
    reader.wait_for_role(as_worker, "host of hello.*")
    reader.start(f"{as_worker}duly worker examples.hello:app", "worker")
    wait_until(lambda: reader.serves(reader.health), PATIENCE)

    ran = reader.run(f'{as_shop}duly schedule hello.greet \'{{"name": "Ada"}}\' --wait')

    assert "Hello, Ada!" in ran
    nobody = "export DULY_RPC_CA_FILE=certs/ca.pem\n"
    assert "set DULY_RPC_CERT_FILE" in reader.run(f"{nobody}duly whoami", code=69)
