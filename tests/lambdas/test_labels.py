"""Labels: their names, the queues of tasks that require them, and who serves these."""

import pytest

import duly
from duly_controller.executor_registry import AttachedExecutor
from duly_core.errors import SettingsError
from duly_core.lambdas import administration
from duly_core.lambdas import store as lambdas
from duly_core.lambdas.names import QUEUE_NAME
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.lambdas.store import MOST_LABEL_QUEUES
from duly_core.rpc.requests.names import check_lambda_name
from duly_core.rpc.requests.problem import Problem
from duly_executor.work.labels import parse_labels, runnable
from duly_executor.work.sources import LabelQueues
from duly_wire.queue_names import QueueName, check_labels, check_required, in_domain, queues_for, requiring
from duly_wire.v1 import fleet_pb2, fleet_pb2_grpc, registry_pb2

NAME, GPU, BOTH = "video.cut", "video.cut@:gpu", "video.cut@:gpu,region=eu"


@pytest.mark.parametrize("text", [GPU, BOTH, "n/a@1.2+x:gpu", "n/a@1~lab:a,b=C", "a@~lab-b:x_y.z-1"])
def test_a_queue_with_labels_is_written_as_it_is_read(text):
    assert str(QueueName.parse(text)) == text
    assert QUEUE_NAME.fullmatch(text)
    check_lambda_name("lambda", text)


@pytest.mark.parametrize(
    "text",
    [
        "a@:",
        "a:gpu",
        "a@:Gpu",
        "a@:gpu,",
        "a@:gpu,gpu",
        "a@:b,a",
        "a@:gpu=",
        "a@:gpu~lab",
        "a@:a@b",
        f"a@:{'x' * 64}",
        "a@:" + ",".join("abcdefghi"),
    ],
)
def test_what_is_no_queue_with_labels_is_refused(text):
    with pytest.raises(Problem):
        check_lambda_name("lambda", text)


def test_labels_are_sorted_and_a_host_and_a_task_have_a_bounded_number():
    assert check_labels(["region=eu", "gpu", "gpu"]) == "gpu,region=eu"
    assert requiring(in_domain("a@1", "lab"), "gpu") == "a@1~lab:gpu"
    assert requiring(GPU, "region=eu") == BOTH
    assert parse_labels("region=eu, gpu gpu") == ("gpu", "region=eu")
    with pytest.raises(ValueError, match="at most 32"):
        check_labels(map("l{}".format, range(33)))
    with pytest.raises(ValueError, match="at most 8"):
        requiring("a@:" + ",".join("abcdefgh"), "i")
    for wrong in ("gpu", 7, [7], ["no label"]):
        with pytest.raises(ValueError, match=r"list of labels|must be a text|is no label"):
            check_required(wrong)


def test_a_host_serves_the_queues_whose_labels_it_has_of_what_it_serves():
    known = [GPU, BOTH, "video.cut@:arm", "video.cut@~lab:gpu", "other@:gpu", NAME]

    assert queues_for(["gpu", "region=eu"], [NAME], known) == [GPU, BOTH]
    assert queues_for(["gpu"], [NAME, "video.cut@~lab"], known) == [GPU, "video.cut@~lab:gpu"]
    assert queues_for([], [NAME], known) == []


def test_a_source_asks_for_the_queues_of_its_lambdas_only():
    queues = LabelQueues(("gpu",), {NAME, "mail.send"})
    queues.take([GPU, "mail.send@:gpu", BOTH])

    assert queues.beside([NAME]) == [GPU]
    assert queues.beside(["mail.send", NAME]) == ["mail.send@:gpu", GPU]


def test_a_controller_serves_and_reports_them_for_its_executor():
    executor = AttachedExecutor(
        "e", frozenset({NAME}), -1, -1, declared=((NAME, "3"),), labels=("gpu",), served=frozenset({NAME})
    )

    assert executor.serve_label_queues([GPU, BOTH])
    assert not executor.serve_label_queues([GPU, BOTH])

    assert executor.lambdas == {NAME, GPU}
    assert executor.declared == ((NAME, "3"), (GPU, "3"))
    assert executor.serve_label_queues([])
    assert executor.lambdas == {NAME}


def test_a_worker_serves_what_its_host_can_do_and_does_not_start_for_nothing():
    plain, gpu = (
        registry_pb2.Lambda(name="mail.send"),
        registry_pb2.Lambda(name=NAME, requires=["gpu", "region=eu"]),
    )

    assert runnable([plain, gpu], ("gpu",), "app") == [plain]
    assert runnable([plain, gpu], ("gpu", "region=eu"), "app") == [plain, gpu]
    with pytest.raises(SettingsError, match=r"has not: region=eu\. Start the worker with --label region=eu"):
        runnable([gpu], ("gpu",), "app")


@pytest.fixture
async def registered(store):
    await lambdas.register(store, [LambdaPolicy(NAME, version="1", owner="o")])
    return store


@pytest.fixture
async def client(frontend, registered):
    async with duly.AsyncClient(frontend.address) as client:
        yield client


async def queues(store):
    return {each.policy.name: each.policy for each in await lambdas.list_lambdas(store)}


async def test_the_first_task_that_requires_labels_makes_their_queue(client, registered):
    task = await client.schedule(NAME, requires=["region=eu", "gpu"])

    assert (await client.get(task)).requires == ("gpu", "region=eu")
    assert (await client.get(task)).lambda_name == BOTH
    made = (await queues(registered))[BOTH]
    assert (made.owner, made.version) == ("o", "1")
    with pytest.raises(duly.UnknownLambdaError):
        await client.schedule("nobody.knows", requires=["gpu"])
    with pytest.raises(duly.InvalidTaskError, match="requires: 'no label'"):
        await client.schedule(NAME, requires=["no label"])


async def test_a_graph_and_a_node_may_require_labels(client, registered):
    graph = duly.NewGraph("g")
    graph.task(NAME, {}, label="a", requires=["gpu"])

    scheduled = await client.schedule_graph(graph)

    assert (await client.get(scheduled.task_ids["a"])).lambda_name == GPU


async def test_the_queue_follows_the_policy_of_its_lambda(client, registered):
    await client.schedule(NAME, requires=["gpu"])

    await lambdas.register(registered, [LambdaPolicy(NAME, version="2", owner="o", max_attempts=7)])
    assert (await queues(registered))[GPU].max_attempts == 7

    await administration.roll_back(registered, NAME, "1", None)
    assert (await queues(registered))[GPU].max_attempts == 10
    assert (await client.get_lambda(NAME)).pinned == (GPU,)


@pytest.mark.parametrize("restored", [False, True])
async def test_the_queue_of_a_lambda_that_was_deleted_comes_back_with_it(client, registered, restored):
    waiting = await client.schedule(NAME, requires=["gpu"])
    await administration.delete(
        registered, NAME, "op", despite_tasks=True, dry_run=False, expected_revision=None
    )
    if restored:
        await client.restore_lambda(NAME)

    await lambdas.register(registered, [LambdaPolicy(NAME, version="2", owner="o")])

    assert GPU in await queues(registered)
    kinds = {each.kind for each in (await client.explain(waiting)).reasons}
    assert duly.ReasonKind.LAMBDA_DELETED not in kinds


async def test_a_lambda_has_a_bounded_number_of_them(client, registered):
    for start in range(0, MOST_LABEL_QUEUES, 25):
        await client.schedule_many(duly.NewTask(NAME, requires=[f"l{start + n}"]) for n in range(25))

    with pytest.raises(duly.UnknownLambdaError, match="too many different sets of labels"):
        await client.schedule(NAME, requires=["one-more"])
    await client.schedule(NAME, requires=["l0"])
    assert len(await queues(registered)) == MOST_LABEL_QUEUES + 1


async def report(frontend, labels, lambdas=(NAME,)):
    """Report a host of these lambdas; return which queues of labels it is told."""
    request = fleet_pb2.ReportHostRequest(
        host_id="host-1",
        name="host-1",
        queue_backend="store",
        lambdas_digest=bytes(16),
        executors=[fleet_pb2.Executor(executor_id="e", processes=1, slots=2, labels=labels)],
        lambda_sets=[
            fleet_pb2.LambdaSet(lambdas=[fleet_pb2.HostLambda(name=name, version="1") for name in lambdas])
        ],
    )
    request.started_at.GetCurrentTime()
    request.interval.FromSeconds(10)
    stub = fleet_pb2_grpc.FleetServiceStub(frontend.channel)
    return [*(await stub.ReportHost(request)).label_queues]


async def test_a_host_is_told_the_queues_whose_labels_it_has(client, frontend):
    for required in (["gpu"], ["gpu", "region=eu"], ["arm"]):
        await client.schedule(NAME, requires=required)

    assert await report(frontend, ["gpu", "region=eu"]) == [GPU, BOTH]
    assert await report(frontend, []) == []
    assert [each.labels async for each in client.hosts()] == [()]


async def test_a_host_is_told_those_of_its_lambdas_if_all_are_too_many(
    client, registered, frontend, monkeypatch
):
    await lambdas.register(registered, [LambdaPolicy("another", version="1", owner="o")])
    for name in ("another", NAME):
        await client.schedule(name, requires=["gpu"])
    await report(frontend, ["gpu"])
    monkeypatch.setattr("duly_frontend.fleet.service._MOST_LABEL_QUEUES", 1)

    assert await report(frontend, ["gpu"]) == [GPU]


@pytest.mark.parametrize(
    ("labels", "served", "text"),
    [
        ([], (NAME,), "no host has gpu and region=eu: 1 live host serves video.cut, without it"),
        (["gpu"], (NAME,), "no host has region=eu: 1 live host serves video.cut, without it"),
        (["gpu", "region=eu"], (NAME,), "it is the first task of video.cut for some time that requires gpu and region=eu"),
        (["gpu"], ("other",), "no live host serves video.cut, which requires gpu and region=eu"),
    ],
)  # fmt: skip
async def test_explain_says_which_label_no_host_has(client, frontend, labels, served, text):
    task = await client.schedule(NAME, requires=["gpu", "region=eu"])
    await report(frontend, labels, served)

    (reason, *_) = [
        each for each in (await client.explain(task)).reasons if each.kind is duly.ReasonKind.NO_HOST
    ]

    assert reason.text.startswith(text)
    if labels != ["gpu", "region=eu"]:
        assert "--label gpu --label region=eu" in reason.action


async def test_explain_of_a_task_whose_lambda_requires_labels_names_them(client, frontend, registered):
    await lambdas.register(registered, [LambdaPolicy(NAME, version="2", owner="o", requires="gpu")])
    task = await client.schedule(NAME)
    await report(frontend, ["arm"], ("other",))

    (reason, *_) = (await client.explain(task)).reasons

    assert reason.text.startswith("no live host serves video.cut, which requires gpu")
    assert "--label gpu" in reason.action
