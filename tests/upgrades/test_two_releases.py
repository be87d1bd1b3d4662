"""The base release and this one side by side on one store: nothing is lost, nothing overlaps, no caller sees an error."""

import faulthandler
import os
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

import duly
from duly_local.certificates import make_authority, make_certificate
from duly_local.moto import AWS_ENVIRONMENT
from tests.fixtures import typescript
from tests.fixtures.forked_process import ROOT
from tests.fixtures.mixed_releases import (
    CLIENT,
    COMMAND,
    WORKER,
    Surroundings,
    gray_walk,
    mixed_releases,
    old_release,
    two_orders,
    whole_walk,
)
from tests.fixtures.service_processes import poll

ALL = bool(os.environ.get("DULY_UPGRADES_ALL"))

pytestmark = [
    pytest.mark.long,  # starts two releases of all services, and restarts each; test_schema_rule.py has the rule
    pytest.mark.timeout(4 * 3600 if ALL else 1800),
]

SERVICES = {
    "one server": ("server",),
    "services": ("frontend", "store-consumer", "hsc"),
}


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    return old_release(tmp_path_factory.mktemp("old")), ROOT


@pytest.fixture
def empty_dsn(postgres_server):
    name = f"duly_test_{uuid4().hex[:12]}"
    postgres_server._create(name, "template1")
    yield postgres_server.dsn_of(name)
    postgres_server.drop(name)


@pytest.fixture(autouse=True)
def faulthandler_waits():
    """It ends a process whose test takes longer than any other may; these have a longer time."""
    faulthandler.cancel_dump_traceback_later()


@pytest.mark.parametrize("services", SERVICES.values(), ids=SERVICES)
async def test_each_mixture_of_two_releases_runs_tasks_on_the_way_to_the_new_one_and_back(
    releases, empty_dsn, services, tmp_path: Path
):
    with mixed_releases(tmp_path, empty_dsn, releases, services) as mixed:
        assert [mixed.code_of(release).is_relative_to(releases[release]) for release in (0, 1)] == [
            True,
            True,
        ]
        mixed.command(0, "migrate")
        for part in mixed.parts:
            await mixed.start(part, 0)
        walk = whole_walk if ALL else gray_walk
        mixed.command(1, "migrate")
        for part, release in walk(mixed.parts):
            await mixed.swap(part, release)
        stored, tasks = await to_the_end(mixed)

    assert mixed.faults() == []
    assert [task.result for task in tasks] == stored
    assert {task.status for task in tasks} == {duly.TaskStatus.SUCCESS}


async def to_the_end(mixed, **client):
    """Stop the client; the keys of what it scheduled, and the tasks when they have ended."""
    mixed.stop(CLIENT)
    stored = mixed.scheduled()
    async with duly.AsyncClient(mixed.frontend, **client) as reader:
        return [*stored], [await reader.wait(task, timedelta(seconds=60)) for task in stored.values()]


async def test_tasks_run_through_sqs_while_each_process_goes_to_the_new_release_and_back(
    releases, empty_dsn, moto_endpoint, tmp_path: Path
):
    queue = {
        "DULY_QUEUE_BACKEND": "sqs",
        "DULY_QUEUE_ENDPOINT_URL": moto_endpoint,
        "DULY_QUEUE_PREFIX": f"walk-{uuid4().hex[:8]}",
        "DULY_QUEUE_VISIBILITY": "15s",  # of what a worker that is stopped had received
        "DULY_STORE_CONSUMER_ENQUEUE_TIMEOUT": "15s",
        **AWS_ENVIRONMENT,
    }
    surroundings = Surroundings({"": queue})
    with mixed_releases(tmp_path, empty_dsn, releases, SERVICES["services"], surroundings) as mixed:
        mixed.command(0, "migrate")
        for part in mixed.parts:
            await mixed.start(part, 0)
        mixed.command(1, "migrate")
        for part, release in two_orders(mixed.parts):
            await mixed.swap(part, release)
        stored, tasks = await to_the_end(mixed)

    assert mixed.faults() == []
    assert [task.result for task in tasks] == stored
    assert {task.status for task in tasks} == {duly.TaskStatus.SUCCESS}


async def test_tls_tokens_and_roles_of_either_release_are_the_others_too(releases, empty_dsn, tmp_path: Path):
    certificates = tmp_path / "certificates"
    make_authority(certificates)
    make_certificate(certificates, "server", ["127.0.0.1"])
    ca_file = certificates / "ca.pem"
    server = {
        "DULY_RPC_CERT_FILE": str(certificates / "server.pem"),
        "DULY_RPC_KEY_FILE": str(certificates / "server.key"),
        "DULY_AUTH_MODE": "required",
    }
    tokens = {COMMAND: "ann", WORKER: "worker-1", CLIENT: "shop"}
    surroundings = Surroundings(
        {"": {"DULY_RPC_CA_FILE": str(ca_file)}}
        | dict.fromkeys(SERVICES["services"], server)
        | {part: {"DULY_RPC_TOKEN_FILE": str(tmp_path / f"{name}.token")} for part, name in tokens.items()},
        ca_file=ca_file,
    )

    async def make_token(release, name):
        """Put it where its reader looks once servers know it, which takes them up to two seconds."""
        mixed.command(release, "tokens", "create", name, "--to-file", f"{name}.next")

        async def it_is_known():
            try:
                async with duly.AsyncClient(mixed.frontend, **connection_of(name, "next")) as client:
                    return await client.access()
            except duly.UnauthenticatedError:
                return None

        await poll(it_is_known)
        (tmp_path / f"{name}.next").replace(tmp_path / f"{name}.token")

    def connection_of(name, suffix="token"):
        token = (tmp_path / f"{name}.{suffix}").read_text().strip()
        return {"credentials": mixed.credentials, "token": token}

    async def call_as(name):
        async with duly.AsyncClient(mixed.frontend, **connection_of(name)) as client:
            return await client.schedule("walk.step", {})

    with mixed_releases(tmp_path, empty_dsn, releases, SERVICES["services"], surroundings) as mixed:
        mixed.command(0, "migrate")
        mixed.command(0, "db", "operator", "ann", "--to-file", "ann.token")
        for part in SERVICES["services"]:
            await mixed.start(part, 0)
        for name, role in (("worker-1", "host"), ("worker-1", "owner"), ("shop", "client")):
            mixed.command(0, "grant", "add", name, role, "walk.*")
        for name in ("worker-1", "shop", "stranger"):
            await make_token(0, name)
        await mixed.start(WORKER, 0)
        await mixed.start(CLIENT, 0)
        mixed.command(1, "migrate")
        for part, release in two_orders(mixed.parts):
            if part in tokens:  # this release's operator makes it, of whichever Frontend runs
                await make_token(release, tokens[part])
            await mixed.swap(part, release)
            with pytest.raises(duly.PermissionDeniedError):
                await call_as("stranger")
        stored, tasks = await to_the_end(mixed, **connection_of("shop"))

    assert mixed.faults() == []
    assert [task.result for task in tasks] == stored
    assert {task.status for task in tasks} == {duly.TaskStatus.SUCCESS}


@typescript.needs_node
@pytest.mark.xdist_group("typescript")
async def test_the_typescript_client_of_either_release_serves_in_each_mixture(
    releases, empty_dsn, tmp_path: Path
):
    for release in releases:
        typescript.build(release)

    def program(release):
        dist = release / "clients" / "typescript" / "dist" / "index.js"
        return ["node", str(ROOT / "tests" / "fixtures" / "walk_client.mjs"), str(dist)]

    surroundings = Surroundings({CLIENT: {"PATH": os.environ["PATH"]}}, client=program)
    with mixed_releases(tmp_path, empty_dsn, releases, SERVICES["one server"], surroundings) as mixed:
        mixed.command(0, "migrate")
        for part in mixed.parts:
            await mixed.start(part, 0)
        mixed.command(1, "migrate")
        for part, release in gray_walk(mixed.parts):
            await mixed.swap(part, release)
        stored, tasks = await to_the_end(mixed)

    assert mixed.faults() == []
    assert [task.result for task in tasks] == stored
    assert {task.status for task in tasks} == {duly.TaskStatus.SUCCESS}
