"""The page "Install on several machines", word for word: a fresh Postgres, a server with TLS and roles, a worker, a task."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from duly_local.ports import free_ports
from duly_local.postgres.binaries import ENVIRONMENT_VARIABLE, PostgresBinaries
from duly_local.postgres.embedded import EmbeddedPostgres
from tests.fixtures.documents import DOCS, shell_blocks
from tests.fixtures.forked_process import ROOT
from tests.fixtures.page_reader import PATIENCE, PageReader
from tests.fixtures.postgres import FAST, data_folder
from tests.fixtures.postgres_versions import installations
from tests.fixtures.waiting import wait_until

# long: makes a Postgres, fills an environment from a package index, and starts a stack of its own
pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(600)]

PAGE = "operators/install.md"
APPLICATION = """
import duly

app = duly.App(owner="mail@example.org", version="1")


@app.callback("mail.send")
def send(message: dict[str, str]) -> str:
    return f"sent to {message['to']}"
"""
UNTRIED = ("useradd ", "systemctl ")
"""What begins so changes the machine itself: the test starts what the units start."""
ADMINISTRATOR = "postgres"


@pytest.fixture(params=installations(), ids=lambda each: f"postgres{each.major}")
def fresh_postgres(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a Postgres in which nobody has done anything for Duly yet, for its administrator."""
    binaries: PostgresBinaries = request.param
    with data_folder() as folder:
        postgres = EmbeddedPostgres(folder / "data", settings=FAST)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(ENVIRONMENT_VARIABLE, str(binaries.folder))
            postgres.start()
        try:
            yield without_names_of_duly(postgres.dsn_of("postgres"))
        finally:
            postgres.stop()


def without_names_of_duly(dsn: str) -> str:
    """Free the names that the page uses: the embedded Postgres has a user and a database of these names."""
    password = conninfo_to_dict(dsn)["password"]
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"create role {ADMINISTRATOR} superuser login password '{password}'")
    for_administrator = make_conninfo(dsn, user=ADMINISTRATOR)
    with psycopg.connect(for_administrator, autocommit=True) as connection:
        connection.execute("alter database duly rename to embedded")
        connection.execute("alter role duly rename to embedded")
    return for_administrator


@dataclass
class Machine:
    """One machine that is all of the page's machines: its folders and addresses stand for those of the page."""

    folder: Path
    postgres: str
    ports: dict[str, int]

    def here(self, text: str) -> str:
        """Return a text of the page with this machine's folders and addresses."""
        for name in ("/etc/", "/opt/"):
            text = text.replace(name, f"{self.folder}{name}")
        text = text.replace("/path/to/clone", str(self.folder / "clone"))
        text = text.replace("postgres.example.org", self.postgres)
        text = re.sub(r"10\.0\.0\.11:(\d+),10\.0\.0\.12:\d+", r"127.0.0.1:\1", text)
        return re.sub(r"(?<==)94\d\d\b|(?<=:)(74|94)\d\d\b", lambda port: str(self.ports[port[0]]), text)

    def write(self, path: str, text: str) -> None:
        """Write a file that the page names."""
        file = Path(self.here(path))
        file.write_text(self.here(text), encoding="utf-8")
        file.chmod(0o600)

    def unit(self, service: str, instance: str = "") -> str:
        """Return the commands by which systemd would start a service with its unit."""
        lines = (ROOT / "deploy/systemd" / service).read_text(encoding="utf-8").splitlines()
        settings = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
        file = self.here(settings["EnvironmentFile"].replace("%i", instance))
        return f"set -a\nsource {file}\n{self.here(settings['ExecStart'])}"


@pytest.fixture
def machine(tmp_path: Path, fresh_postgres: str) -> Machine:
    address = conninfo_to_dict(fresh_postgres)
    used = ("7401", "7402", "7403", "9401", "9411", "9412")
    made = Machine(
        tmp_path,
        f"{address['host']}:{address['port']}",
        dict(zip(used, free_ports(len(used)), strict=True)),
    )
    for folder in ("etc/systemd/system", "opt", "clone"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / "clone" / name)
    for name in ("wire", "sdk", "core", "services", "server", "cli", "local", "deploy", "examples"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, tmp_path / "clone" / name, ignore=ignored)
    return made


@pytest.fixture
def reader(machine: Machine) -> Iterator[PageReader]:
    made = PageReader(machine.folder, {"PYTHONPATH": str(machine.folder)})
    yield made
    made.stop()


def tried(block: str) -> str:
    return "\n".join(line for line in block.splitlines() if not line.startswith(UNTRIED))


def file_of_the_page(path: str) -> str:
    """Return what the page says to write to a file: the block after its first mention with "Write"."""
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    found = re.search(rf"Write `{re.escape(path)}`[^`]*(?:`[^`\n]+`[^`]*)*?```\n(.*?)```", text, re.DOTALL)
    assert found is not None, path
    return found[1]


def test_the_page_leads_from_a_fresh_postgres_to_a_task_that_ran(
    machine: Machine, reader: PageReader, fresh_postgres: str
) -> None:
    install, migrate, health, first_operator, as_ann, worker_token, _, check = ordered_blocks()
    with psycopg.connect(fresh_postgres, autocommit=True) as administrator:
        for statement in sql_block().split(";"):
            if statement.strip():
                administrator.execute(statement.encode())

    # the Python in use has no environment of its own inside: it makes one for the server, with the worker's packages
    reader.run(tried(machine.here(install)).replace("[services]", "[services,worker]"), patience=5 * PATIENCE)
    reader.run(machine.here(migrate))
    reader.run("duly certs certs --server 127.0.0.1")
    reader.run(machine.here("cp certs/ca.pem certs/server.pem certs/server.key /etc/duly/"))
    machine.write("/etc/duly/server.password", "CHANGE-ME-TOO")
    machine.write("/etc/duly/server.env", file_of_the_page("/etc/duly/server.env"))
    credentials = machine.here("export DULY_STORE_PASSWORD_FILE=/etc/duly/server.password\n")
    own_port = f"export DULY_STORE_CONSUMER_LISTEN=127.0.0.1:{machine.ports['7403']}\n"
    reader.start(credentials + own_port + machine.unit("duly-server.service"), "server")
    wait_until(lambda: reader.succeeds(machine.here(tried(health))), PATIENCE)
    reader.run(machine.here(first_operator))
    assert "operator of *" in reader.run(machine.here(as_ann))

    terminal = machine.here(as_ann.rpartition("/opt/duly/bin/duly whoami")[0])
    reader.run(terminal + machine.here(worker_token))
    reader.run(machine.here("cp worker-mail.token /etc/duly/worker-mail.token"))
    machine.write("/etc/duly/worker-mail.env", file_of_the_page("/etc/duly/worker-mail.env"))
    (machine.folder / "mail.py").write_text(APPLICATION, encoding="utf-8")
    as_worker = f"{terminal}\nexport DULY_RPC_TOKEN_FILE=worker-mail.token\n"
    wait_until(lambda: "host of mail.*" in reader.run(f"{as_worker}duly whoami || true"), PATIENCE)
    own_folder = f"export DULY_EXECUTOR_JOURNAL_FOLDER={machine.folder}/journals\n"
    reader.start(own_folder + machine.unit("duly-worker@.service", "mail"), "worker")

    def lambdas() -> bool:
        return "mail.send" in reader.run(f"{terminal}\n{machine.folder}/opt/duly/bin/duly lambdas")

    wait_until(lambdas, PATIENCE)
    grant, _, rest = machine.here(check).partition("\n")
    reader.run(terminal + grant)
    *listing, schedule = rest.strip().splitlines()
    reader.run(terminal + "\n".join(listing))
    wait_until(lambda: reader.succeeds(terminal + schedule), timedelta(seconds=30))
    assert "sent to ada@example.org" in reader.run(terminal + schedule)


def ordered_blocks() -> list[str]:
    """Return the commands of the page's four steps, in the order in which the page has them carried out."""
    migrate, install, *rest = shell_blocks(PAGE)
    return [install, migrate, *rest]


def sql_block() -> str:
    (block,) = re.findall(
        r"^```sql\n(.*?)^```", (DOCS / PAGE).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    return str(block)
