"""An Executor with reserved slots: what it asks for, what it does with more than that, and which settings it refuses."""

import pytest

from duly_wire.v1 import controller_pb2, hsc_pb2, task_pb2
from tests.fixtures.host import Host, claimed, value_of
from tests.fixtures.scripted_hsc import Remembering

RESERVED = {
    "DULY_EXECUTOR_SLOTS": "4",
    "DULY_EXECUTOR_RESERVED_SLOTS": "test.echo=1, test.async:high=1",
    "DULY_EXECUTOR_POLL_TIMEOUT": "60s",
}
SHARED = 2


def asked_for(
    request: hsc_pb2.ClaimWorkRequest | controller_pb2.NextWorkRequest, everything: set[str]
) -> tuple[str, str, int]:
    """The lambdas, the priorities and the number of tasks."""
    names = set(getattr(request, "lambdas"))  # noqa: B009 (beside its singular, a keyword)
    lambdas = "all" if names in (set(), everything) else ",".join(names)
    priorities = ",".join(map(task_pb2.Priority.Name, request.priorities))
    return lambdas, priorities, request.max_tasks


@pytest.mark.parametrize("asks_hsc", [True, False])
async def test_an_executor_asks_for_each_reservation_and_for_the_rest(host: Host, *, asks_hsc: bool) -> None:
    host.controller.ask_hsc = asks_hsc
    peer: Remembering = host.hsc if asks_hsc else host.controller
    asked: list[hsc_pb2.ClaimWorkRequest] | list[controller_pb2.NextWorkRequest]
    asked = host.hsc.asked if asks_hsc else host.controller.asked

    host.start(**RESERVED)

    def kinds() -> set[tuple[str, str, int]]:
        everything = {declared.name for declared in host.controller.attached[0].lambdas}
        return {asked_for(request, everything) for request in asked}

    await peer.until(lambda: len(asked) >= 3)
    assert kinds() <= {
        ("all", "", SHARED),
        ("test.echo", "", 1),
        ("test.async", "PRIORITY_HIGH", 1),
    }
    await peer.until(lambda: len(kinds()) == 3)


async def test_what_a_peer_hands_out_beyond_the_shared_slots_is_handed_back_and_a_reserved_task_runs(
    host: Host,
) -> None:
    await host.ready(**RESERVED)
    flood = [host.waiting() for _ in range(SHARED + 2)]
    reserved = claimed("test.echo", 42)

    host.hand_out(*flood)
    await host.hsc.release_of(*flood[SHARED:])
    host.hand_out(reserved)

    assert value_of(await host.hsc.end_of(reserved)) == 42
    assert [host.journal.has("started", task) for task in flood] == [True, True, False, False]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"RESERVED_SLOTS": "test.eco=1"}, "has no lambda test.eco; do you mean test.echo?"),
        ({"RESERVED_SLOTS": "test.echo=9"}, "reserves 9 slots, but an Executor has 8"),
        ({"RESERVED_SLOTS": "test.echo=3", "SLOTS": "2"}, "reserves 3 slots, but an Executor has 2"),
        ({"RESERVED_SLOTS": "test.echo:hi=1"}, "'hi' is not a priority"),
        ({"RESERVED_SLOTS": "test.echo=-1"}, "must reserve 1 slot or more, not -1"),
    ],
)
async def test_an_executor_refuses_reservations_that_it_cannot_keep(
    host: Host, settings: dict[str, str], problem: str
) -> None:
    executor = host.start(**{f"DULY_EXECUTOR_{name}": value for name, value in settings.items()})

    assert await executor.exit_code() == 78
    assert problem in executor.output
    assert "executor" in executor.output
    assert host.controller.asked == []
