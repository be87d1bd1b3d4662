"""Explain names all reasons that hold now, in the order in which they must be gone, each with what to do about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import combinations

import psycopg

import duly
from duly_wire.enums import ReasonKind
from duly_wire.v1 import fleet_pb2_grpc
from tests.fixtures.task_states import LAMBDA
from tests.fleet.test_fleet_hosts import a_report

HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Expected:
    """A reason: its kind, what its text says, and what is and is not advised."""

    kind: ReasonKind
    says: str
    advises: str = ""
    never: str = "add workers"


CONDITIONS: Mapping[str, Expected] = {
    "session": Expected(ReasonKind.SESSION, "1 task is before it in its session", "duly explain "),
    "later": Expected(ReasonKind.DUE_LATER, "it is due in"),
    "gate": Expected(ReasonKind.GATE, "holds it back", "duly gates delete "),
    "deleted": Expected(ReasonKind.LAMBDA_DELETED, "was deleted", "duly lambdas restore "),
    "full": Expected(
        ReasonKind.RESOURCE, "1 of 1 units of full are taken", "wait until others end", "find out why"
    ),
    "zero": Expected(ReasonKind.RESOURCE, "the capacity of zero is 0", "--mentions zero` says who", "wait"),
    "no host": Expected(ReasonKind.NO_HOST, "no live host serves", "start a worker"),
}
"""In the order in which Explain names them."""
SETS = [
    frozenset(chosen)
    for size in range(len(CONDITIONS) + 1)
    for chosen in combinations(CONDITIONS, size)
    if size <= 2 or size == len(CONDITIONS) or chosen == ("session", "gate", "zero", "no host")
]
"""None, each one, each two, what an operator once saw two of four of, and all."""


def lambda_of(number):
    return f"combined.n{number}"


async def a_task_under(number, conditions, client, dsn, fleet):
    """Schedule a task to which these conditions apply, and no others."""
    name = lambda_of(number)
    needs = [each for each in ("full", "zero") if each in conditions]
    fields = {"resources": needs} if needs else {}
    if "session" in conditions:
        fields["session"] = f"s{number}"
        await client.schedule(name, session=f"s{number}")
    if "later" in conditions:
        fields["delay"] = HOUR
    task = await client.schedule(name, **fields)
    if "gate" in conditions:
        await client.put_gate(f"g{number}", duly.GateKind.PAUSE, name)
    if "no host" not in conditions:
        await fleet.ReportHost(a_report(f"host-{number}", lambdas=(name,)))
    if "deleted" in conditions:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("delete from lambda where name = %s", [name])
            connection.execute(
                "insert into deleted_lambda values (%s, 'team', '1', 1, duly_now(), 'ann')", [name]
            )
    return task


def expected(conditions):
    # hosts of a lambda that is gone do not matter
    named = [
        reason
        for condition, reason in CONDITIONS.items()
        if condition in conditions and not (condition == "no host" and "deleted" in conditions)
    ]
    return named or [Expected(ReasonKind.READY, "it is due", "")]


async def test_all_conditions_that_hold_are_named_in_order_each_with_its_advice(
    client, task_states, frontend, dsn
):
    fleet = fleet_pb2_grpc.FleetServiceStub(frontend.channel)
    for number in range(len(SETS)):
        await task_states.register(lambda_of(number))
    await client.put_resource("zero", 0)
    await client.put_resource("full", 1)
    holder = await client.schedule(LAMBDA, resources=["full"])
    await task_states.take_of(LAMBDA)
    await fleet.ReportHost(a_report("other", lambdas=("other.run",)))

    wrong = {}
    for number, conditions in enumerate(SETS):
        task = await a_task_under(number, conditions, client, dsn, fleet)
        reasons = (await client.explain(task, history=False)).reasons
        wanted = expected(conditions)
        fits = [reason.kind for reason in reasons] == [each.kind for each in wanted] and all(
            each.says in reason.text
            and each.advises in reason.action
            and each.never not in reason.action
            and bool(each.advises) == bool(reason.action)
            for reason, each in zip(reasons, wanted, strict=True)
        )
        held = [each.task_id for reason in reasons for each in reason.tasks if reason.resource == "full"]
        if not fits or held != [holder.task_id] * ("full" in conditions):
            wrong[tuple(conditions)] = [(reason.kind.name, reason.text, reason.action) for reason in reasons]

    assert wrong == {}


async def test_a_parked_task_needs_units_first_and_then_what_else_holds_it(client, task_states):
    await client.put_resource("zero", 0)
    task = await client.schedule(LAMBDA, resources=["zero"])
    await task_states.end_all_that_may_run()
    await client.put_gate("later", duly.GateKind.PAUSE, LAMBDA)

    reasons = (await client.explain(task)).reasons

    assert [each.kind for each in reasons] == [ReasonKind.RESOURCE, ReasonKind.GATE, ReasonKind.NO_HOST]
