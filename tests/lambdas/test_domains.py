"""Domains: their names, the queues that a host of them serves, and that its tasks are run, counted, listed and explained apart."""

import os

import pytest

import duly
from duly.graphs.definition import run_of
from duly_core.lambdas import store as lambdas
from duly_core.lambdas.names import QUEUE_NAME, QueueKey
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.limits.store import ResourceLimit, quotas_of
from duly_core.rpc.requests.names import check_lambda_name
from duly_core.rpc.requests.problem import Problem
from duly_core.tasks import claims
from duly_core.tasks.claims import Caller, Pick
from duly_executor.work.domains import parse_domains, queues_of
from duly_wire.enums import Priority
from duly_wire.queue_names import QueueName, check_domain, in_domain
from duly_wire.v1 import graphs_pb2, registry_pb2
from tests.fixtures import whole
from tests.fixtures.task_states import CLAIM_TIMEOUT

NAME, LAB_A, LAB_B = "disk.check", "disk.check@~lab-a", "disk.check@~lab-b"


@pytest.mark.parametrize("text", ["a", "n/a@1.2", "a@~lab-b", "n/a@2026.11+x~lab.b", "a@V~0"])
def test_a_queue_has_a_lambda_a_version_and_a_domain_and_is_written_as_it_is_read(text):
    assert str(QueueName.parse(text)) == text
    assert QUEUE_NAME.fullmatch(text)
    check_lambda_name("lambda", text)


@pytest.mark.parametrize(
    "text", ["a@", "a@~", "a@1~", "a@~default", "a@~Lab", "a@~" + "b" * 64, "a@~b~c", "a@~b@1", "a~b"]
)
def test_what_is_no_queue_is_refused(text):
    assert not QUEUE_NAME.fullmatch(text)
    with pytest.raises(Problem):
        check_lambda_name("lambda", text)


def test_no_domain_is_called_default_and_a_queue_keeps_its_own():
    assert [check_domain(each) for each in ("", "default", "lab-b")] == ["", "", "lab-b"]
    with pytest.raises(ValueError, match="'Lab' is no domain"):
        check_domain("Lab")
    assert in_domain("a@1", "lab-b") == "a@1~lab-b"
    assert in_domain("a@~lab-a", "lab-b") == "a@~lab-a"
    assert in_domain("a", "") == "a"


@pytest.mark.parametrize(
    ("text", "domains"),
    [
        ("", ("",)),
        ("default", ("",)),
        ("lab-a, lab-b", ("lab-a", "lab-b")),
        ("lab-a default lab-a", ("lab-a", "")),
    ],
)
def test_a_host_names_its_domains(text, domains):
    assert parse_domains(text) == domains


def test_a_host_declares_the_queues_of_its_domains_with_the_policy_of_the_lambda():
    declared = registry_pb2.Lambda(name=NAME, version="3", max_attempts=2)
    declared.time_tables.add(name="nightly")

    queues = queues_of([declared, registry_pb2.Lambda(name=f"{NAME}@3")], ("", "lab-a", "lab-b"))

    assert [each.name for each in queues] == [LAB_A, f"{NAME}@3~lab-a", LAB_B, f"{NAME}@3~lab-b"]
    assert (queues[0].max_attempts, len(queues[0].time_tables)) == (2, 0)


def test_a_run_of_a_definition_is_in_a_domain_but_for_nodes_that_name_one():
    graph = duly.NewGraph("g")
    graph.task(NAME, {}, label="a")
    graph.task(NAME, {}, label="b", domain="lab-a")
    definition = graphs_pb2.GraphDefinition(name="g", version=1, nodes=graph.to_definition())

    runs = [run_of(definition, {}, domain=domain).to_proto().nodes for domain in ("", "lab-b")]

    found = [[getattr(node.task, "lambda") for node in nodes] for nodes in runs]
    assert found == [[NAME, LAB_A], [LAB_B, LAB_A]]


@pytest.fixture
async def registered(store):
    await lambdas.register(store, [LambdaPolicy(name) for name in (NAME, LAB_A, LAB_B)])
    return store


@pytest.fixture
async def client(frontend, registered):
    async with duly.AsyncClient(frontend.address) as client:
        yield client


async def claim(store, *queues):
    """Claim what hosts of these queues may run."""
    picks = [Pick(QueueKey(name, Priority.NORMAL), 10, 0) for name in queues]
    found = await claims.claim_work(store, picks, [Caller("host", os.urandom(14))], 10, CLAIM_TIMEOUT)
    return sorted(task.lambda_name for task in found.tasks)


async def test_only_hosts_of_a_domain_run_its_tasks(client, registered):
    tasks = [await client.schedule(NAME, domain=domain) for domain in ("lab-a", "lab-b", "default", "")]

    assert [(await client.get(task)).domain for task in tasks] == ["lab-a", "lab-b", "", ""]
    assert await claim(registered, LAB_A) == [LAB_A]
    assert await claim(registered, NAME) == [NAME, NAME]
    assert await claim(registered, NAME, LAB_A) == []
    assert await claim(registered, LAB_B) == [LAB_B]


async def test_a_quota_of_a_domain_counts_its_tasks_of_all_lambdas_and_no_others(client, registered):
    await whole.put_resource(registered, ResourceLimit("domain:lab-a", 1))
    for domain in ("lab-a", "lab-a", "lab-b", ""):
        await client.schedule(NAME, domain=domain)

    assert await claim(registered, LAB_A, LAB_B, NAME) == [NAME, LAB_A, LAB_B]
    assert quotas_of("n/a@1~lab-a") == ("lambda:n/a", "namespace:n", "domain:lab-a")


async def test_a_quota_of_a_lambda_counts_its_tasks_in_all_domains(client, registered):
    await whole.put_resource(registered, ResourceLimit(f"lambda:{NAME}", 2))
    for domain in ("lab-a", "lab-b", ""):
        await client.schedule(NAME, domain=domain)

    assert len(await claim(registered, LAB_A, LAB_B, NAME)) == 2


async def test_a_list_of_a_domain_has_its_tasks_alone(client):
    tasks = {domain: await client.schedule(NAME, domain=domain) for domain in ("lab-a", "lab-b", "")}

    async def listed(**which):
        return {task.task_id async for task in client.list(**which)}

    assert (
        await listed(domain="lab-b")
        == await listed(domain="lab-b", lambda_name=NAME)
        == {tasks["lab-b"].task_id}
    )
    assert await listed(domain="lab-b", lambda_name="other") == set()
    assert len(await listed()) == 3
    with pytest.raises(duly.InvalidTaskError, match="no domain"):
        await listed(domain="Lab")


async def test_a_domain_in_which_nobody_served_the_lambda_is_refused(client):
    with pytest.raises(
        duly.UnknownLambdaError, match=r"serves disk\.check in the domain 'lab-c'.*--domain lab-c"
    ):
        await client.schedule(NAME, domain="lab-c")
    with pytest.raises(duly.InvalidTaskError, match="domain: 'Lab' is no domain"):
        await client.schedule(NAME, domain="Lab")


async def test_explain_says_that_no_host_of_the_domain_lives(client, store):
    task = await client.schedule(NAME, domain="lab-b")
    async with store.connection() as connection:
        await connection.execute(
            """insert into host (host_id, name, version, queue_backend, started_at, first_reported_at, reported_at, report_interval,
                draining, stopped, reported_by, executors)
            values ('h', 'h', '', 'store', now(), now(), duly_now(), interval '1 hour', false, false, '', '[]')"""
        )
        await connection.execute("insert into host_lambda values ('h', %s, 0, '1')", (NAME,))

    (reason, *_) = [
        each for each in (await client.explain(task)).reasons if each.kind is duly.ReasonKind.NO_HOST
    ]

    assert reason.text.startswith("no live host of the domain lab-b serves disk.check")
    assert "--domain lab-b" in reason.action


def test_the_commands_take_a_domain(runner_help):
    for command in ("schedule", "list", "worker", ("graph", "run")):
        assert "--domain" in runner_help(command)


@pytest.fixture
def runner_help():
    from typer.testing import CliRunner

    from duly_cli.__main__ import app

    def ask(command):
        arguments = [command] if isinstance(command, str) else [*command]
        return CliRunner().invoke(app, [*arguments, "--help"], env={"COLUMNS": "200"}).output

    return ask
