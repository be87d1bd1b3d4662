"""Batches that take keys, in a database whose collation sorts capitals as people do: there `a` comes before `B`."""

import asyncio
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from duly_core.postgres.pool import Store
from duly_core.postgres.schema.migrate import migrate
from duly_core.postgres.settings import StoreSettings
from duly_core.tasks import schedule
from duly_core.tasks.task import NewTask, Scheduling, Session
from duly_wire.ids import new_task_id
from tests.fixtures.database import ask, until_a_statement_waits_for_a_lock
from tests.fixtures.task_states import LAMBDA, TaskStates

TAKE_KEY = "insert into idempotency_key (lambda, key, task_id, created_at) values (%s, %s, %s, now())"


@pytest.fixture
def dsn_by_people(each_postgres):
    """An own database: the collation of parameters is the database's, not that of columns."""
    name = f"duly_test_{uuid4().hex[:12]}"
    create = "create database {} template template0 locale_provider icu icu_locale 'en'"
    with psycopg.connect(each_postgres.admin_dsn, autocommit=True) as connection:
        try:
            connection.execute(sql.SQL(create).format(sql.Identifier(name)))
        except (psycopg.errors.SyntaxErrorOrAccessRuleViolation, psycopg.errors.FeatureNotSupported):
            pytest.skip("this Postgres has no databases with collations of ICU")
    dsn = each_postgres.dsn_of(name)
    migrate(dsn)
    yield dsn
    each_postgres.drop(name)


@pytest.mark.parametrize("session", [None, Session("vlan-7")], ids=["alone", "in a session"])
async def test_keys_are_taken_in_the_order_of_code_points(dsn_by_people, session):
    assert ask(dsn_by_people, "select 'a' < 'B'") == [(True,)]
    async with Store(StoreSettings(dsn=dsn_by_people)) as store:
        await TaskStates(store).register()
        tasks = [
            NewTask(new_task_id().bytes, LAMBDA, b"{}", idempotency_key=key, session=session)
            for key in ("a", "B")
        ]
        async with await psycopg.AsyncConnection.connect(dsn_by_people) as other:
            await other.execute(TAKE_KEY, [LAMBDA, "B", uuid4()])
            batch = asyncio.ensure_future(schedule.schedule(store, tasks))
            await until_a_statement_waits_for_a_lock(dsn_by_people)

            # the batch waits for B, and must not have taken what others take after B
            await other.execute(TAKE_KEY, [LAMBDA, "a", uuid4()])
            await other.rollback()

            answers = await batch
    assert [each.verdict for each in answers] == [Scheduling.CREATED, Scheduling.CREATED]
