"""Tasks go the whole way, from the client to their results, through all five services as `duly up` runs them."""

import itertools
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import duly
from tests.fixtures.host import Journal
from tests.fixtures.waiting import wait_until
from tests.fixtures.whole_stack import WholeStack

SECOND = timedelta(seconds=1)
LONG = timedelta(seconds=40)

SOON = {"DULY_STORE_CONSUMER_ENQUEUE_TIMEOUT": "3s"}
"""When the store sends a reference again that a killed Store Consumer had not sent, or a queue lost."""

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]


FORMS = {"store": (), "sqs": ("--separate",)}
"""Without a queue the services are one process, over SQS a process each."""


@pytest.fixture(scope="module", params=["store", pytest.param("sqs", marks=pytest.mark.sqs)])
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeStack]:
    """One that all tests of this module share, without a queue and over SQS."""
    folder = tmp_path_factory.mktemp("stack")
    queue = request.param
    started = WholeStack(folder, "--data", str(folder / "data"), "--queue", queue, *FORMS[queue], **SOON)
    try:
        started.frontend()
        yield started
    finally:
        started.stop()


# What does not depend on the queue is tested without one; so is what waits for a hidden message to come back.
over_the_store = pytest.mark.parametrize("stack", ["store"], indirect=True, scope="module")
large_payloads = pytest.mark.parametrize(
    "stack",
    # long: tests/hsc and test_executor_reporting.py split what is too large for one message; over SQS go references to tasks
    [
        pytest.param("store", marks=pytest.mark.long),
        pytest.param("sqs", marks=[pytest.mark.sqs, pytest.mark.long]),
    ],
    indirect=True,
    scope="module",
)
over_both = pytest.mark.parametrize(
    ("stack", "service"),
    [
        ("store", "server"),
        # long: test_store_silence.py has the end of a worker's claims, test_controller_executors.py that of an Executor
        pytest.param("store", "worker", marks=pytest.mark.long),
        *(
            # long: what is killed without a queue is killed by `make test`
            pytest.param("sqs", service, marks=[pytest.mark.sqs, pytest.mark.long])
            for service in ("frontend", "hsc", "store-consumer")
        ),
    ],
    indirect=["stack"],
    scope="module",
)
"""Every process of both forms; a worker without a queue, for over SQS messages are hidden for a while."""


@pytest.fixture
def client(stack: WholeStack) -> Iterator[duly.Client]:
    with duly.Client(stack.frontend()) as opened:
        yield opened


def test_three_hundred_tasks_of_all_kinds_end_as_they_should(client: duly.Client) -> None:
    kinds = {
        "test.echo": (None, "SUCCESS"),
        "test.async": ({"some": "thing"}, "SUCCESS"),
        "test.fails_once": (None, "SUCCESS"),
        "test.snoozes_once": (None, "SUCCESS"),
        "test.mail": ({"to": "ann", "copies": 2}, "SUCCESS"),
        "test.raise_it": ({"secret": "s"}, "FATAL_FAILURE"),
        "test.return_it": ({"secret": "s" * 20}, "FATAL_FAILURE"),
    }
    priorities = itertools.cycle(duly.Priority)
    wanted = [
        duly.NewTask(name, payload, next(priorities))
        for name, (payload, _) in itertools.islice(itertools.cycle(kinds.items()), 300)
    ]

    ended = client.wait_many(client.schedule_many(wanted), LONG)

    statuses = Counter((task.lambda_name, task.status.name) for task in ended)
    assert dict(statuses.keys()) == {name: end for name, (_, end) in kinds.items()}
    assert statuses.total() == 300
    by_lambda = {task.lambda_name: task for task in ended}
    assert by_lambda["test.async"].result == {"some": "thing"}
    assert by_lambda["test.fails_once"].result == 2
    assert by_lambda["test.snoozes_once"].result == 2
    assert by_lambda["test.snoozes_once"].failures == 0


@over_the_store
def test_a_payload_that_is_not_as_declared_ends_its_task_and_says_where(client: duly.Client) -> None:
    task = client.schedule("test.mail", {"to": "ann", "copies": "two"})

    ended = client.wait(task, LONG)

    assert ended.status is duly.TaskStatus.FATAL_FAILURE
    assert ended.failure is not None
    assert ended.failure.kind is duly.FailureKind.BAD_PAYLOAD
    assert "copies" in ended.failure.message


@over_the_store
def test_the_callbacks_own_fatal_failure_is_kept_with_its_words(client: duly.Client) -> None:
    ended = client.wait(client.schedule("test.misbehave", "fatal"), LONG)

    assert ended.failure is not None
    assert (ended.status.name, ended.failure.message) == ("FATAL_FAILURE", "never again")


@large_payloads
def test_the_largest_payloads_and_results_get_through_together(client: duly.Client) -> None:
    much = "x" * 1_000_000
    tasks = [client.schedule("test.large", {"much": much}) for _ in range(20)]

    for task in tasks:
        ended = client.wait(task, LONG)
        assert (ended.status.name, ended.crashes) == ("SUCCESS", 0)
        assert ended.result == much


@over_the_store
def test_a_scheduled_task_can_be_cancelled_before_it_runs(client: duly.Client) -> None:
    task = client.schedule("test.echo", delay=timedelta(hours=1))

    assert client.cancel(task) is duly.TaskStatus.CANCELLED

    assert client.wait(task, SECOND).status is duly.TaskStatus.CANCELLED


@over_the_store
def test_a_running_task_is_told_that_it_is_cancelled(client: duly.Client, journal: Journal) -> None:
    task = client.schedule("test.wait", journal.payload())
    wait_until(lambda: journal.lines("started"))

    client.cancel(task)

    assert client.wait(task, LONG).status is duly.TaskStatus.CANCELLED
    assert journal.lines("cancelled")


@over_the_store
def test_waiting_ends_when_its_time_is_over(client: duly.Client) -> None:
    task = client.schedule("test.echo", delay=timedelta(hours=1))

    with pytest.raises(duly.WaitTimeoutError):
        client.wait(task, SECOND / 10)


@over_the_store
def test_a_task_runs_at_its_time_and_not_before(client: duly.Client) -> None:
    task = client.schedule("test.echo", delay=SECOND)

    ended = client.wait(task, LONG)

    assert ended.scheduled_at is not None
    assert ended.finished_at is not None
    assert timedelta() <= ended.finished_at - ended.scheduled_at < SECOND


@over_both
def test_no_task_is_lost_when_a_service_is_killed_while_tasks_flow(
    stack: WholeStack, client: duly.Client, service: str, tmp_path: Path
) -> None:
    before = client.schedule_many(duly.NewTask("test.nap", number) for number in range(200))

    killed = stack.kill(service)
    wait_until(lambda: stack.pid_of(service) != killed)
    after = client.schedule_many(duly.NewTask("test.nap", number) for number in range(100))

    ended = client.wait_many([*before, *after], LONG)
    assert Counter(task.status.name for task in ended) == {"SUCCESS": 300}
    assert [task.result for task in ended] == [*range(200), *range(100)]
