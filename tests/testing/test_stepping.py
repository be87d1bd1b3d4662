"""How far a test steps at a time changes nothing: the same tasks run at the same instants, in the same order."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import duly
from duly_local.testing import DulyTestError
from duly_local.testing.database import database_of_tests
from duly_local.testing.stack import TestSession, TestStack

MINUTE = timedelta(minutes=1)
SPAN = 60 * MINUTE
BEGINS_AT = datetime.now(UTC).replace(microsecond=0, second=0, minute=30) + timedelta(days=1)

app = duly.App(owner="tests", version="1")


@app.callback("step.do", max_attempts=3)
def do(plan: dict, ctx: duly.TaskContext) -> int | duly.Snooze:
    """Snooze, fail and schedule children as the plan says."""
    told = ctx.checkpointed or 0
    if told < plan["snoozes"]:
        ctx.checkpoint(told + 1)
        return duly.Snooze(plan["wait"] * MINUTE)
    if ctx.attempt <= plan["failures"]:
        raise duly.RetriableFailure("as planned", retry_after=plan["wait"] * MINUTE)
    if plan["child"]:
        ctx.schedule(
            "step.do", {**plan, "child": False, "name": plan["name"] + "'"}, delay=plan["wait"] * MINUTE
        )
    return told


PLANS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(["a", "b", "c"]),
            "delay": st.integers(0, 20),
            "snoozes": st.integers(0, 2),
            "failures": st.integers(0, 3),
            "wait": st.integers(1, 15),
            "child": st.booleans(),
            "expires": st.sampled_from([0, 10]),
            "session": st.sampled_from(["", "s"]),
        }
    ),
    min_size=1,
    max_size=4,
)
TWO_AT_ONCE = {
    "name": "c",
    "delay": 19,
    "snoozes": 2,
    "failures": 3,
    "wait": 9,
    "child": False,
    "expires": 0,
    "session": "",
}
"""A tick and a task that are due at one instant: which is first was left to Postgres."""
STEPS = st.lists(st.integers(0, 25), max_size=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For attachments, of which there are none."""
    return tmp_path_factory.mktemp("attachments")


def _runs(session: TestSession, folder: Path, plans: list[dict], steps: list[int]) -> list[tuple]:
    with TestStack(session, folder, BEGINS_AT) as stack:
        stack.add_worker(app)
        with stack.client(app) as client:
            for plan in plans:
                expires_at = stack.began_at + plan["expires"] * MINUTE if plan["expires"] else None
                client.schedule(
                    "step.do",
                    plan,
                    delay=plan["delay"] * MINUTE,
                    expires_at=expires_at,
                    session=plan["session"] or None,
                )
            client.create_table("step.tick", "step.do", {**plans[0], "child": False}, every=17 * MINUTE)
            runs = []
            for step in steps:
                left = stack.began_at + SPAN - stack.now
                runs += stack.clock.advance(min(step * MINUTE, left))
            runs += stack.clock.advance_to(stack.began_at + SPAN)
            order = {task.task_id: number for number, task in enumerate(sorted(client.list(), key=_made))}
            ends = sorted((order[task.task_id], task.status.name) for task in client.list())
        told = [(run.at - stack.began_at, order[run.task_id], run.attempt, run.outcome) for run in runs]
        return [*told, *ends]


def _made(task: duly.Task) -> tuple:
    return task.created_at, task.task_id


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PLANS, STEPS)
@example([TWO_AT_ONCE], [19, 18])
def test_steps_of_any_length_run_the_same(
    duly_session: TestSession, folder: Path, plans: list[dict], steps: list[int]
) -> None:
    at_once = _runs(duly_session, folder, plans, [])

    assert _runs(duly_session, folder, plans, steps) == at_once


@pytest.mark.long  # it waits for a lock
def test_a_transaction_that_a_test_left_open_is_named(duly_session: TestSession) -> None:
    with psycopg.connect(duly_session.database.dsn) as left_open:
        left_open.execute("lock table store_epoch in access exclusive mode")

        with pytest.raises(DulyTestError, match="left a transaction open on duly_dsn"):
            duly_session.database.reset(BEGINS_AT)


def test_a_database_on_a_given_server_is_removed_at_the_end(duly_session: TestSession) -> None:
    server = duly_session.database.dsn
    with database_of_tests(server) as made:
        name = psycopg.conninfo.conninfo_to_dict(made.dsn)["dbname"]
        with psycopg.connect(server) as connection:
            asked = "select count(*) from pg_database where datname = %s"
            assert connection.execute(asked, [name]).fetchone() == (1,)

    with psycopg.connect(server) as connection:
        assert connection.execute(asked, [name]).fetchone() == (0,)
