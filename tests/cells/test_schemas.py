"""A store that is one schema: no statement, function, channel or lock of it touches another schema of the database."""

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

import duly_core
from duly_core.errors import SettingsError
from duly_core.postgres.dsn import in_schema
from duly_core.postgres.notifications import Listener, Notifier
from duly_core.postgres.pool import Store
from duly_core.postgres.schema.check import SchemaState, look_at_schema
from duly_core.postgres.schema.comparison import compare
from duly_core.postgres.schema.definition import schema_sql
from duly_core.postgres.schema.migrate import migrate
from duly_core.postgres.service_roles import make_roles
from duly_core.postgres.settings import StoreSettings
from duly_core.results.store import set_results
from duly_core.tasks.task import Result
from duly_core.upkeep.fences import raise_fences
from duly_wire.enums import Outcome
from tests.fixtures.all_statements import ALL_STATEMENTS, prepare_all
from tests.fixtures.postgres import PostgresServer
from tests.fixtures.task_states import TaskStates

OWN, OTHER = "duly_x", "duly_y"
_QUALIFIED = re.compile(r"\b(public|information_schema|pg_temp|pg_toast)\s*\.\s*[\w\"]", re.IGNORECASE)


@dataclass(frozen=True)
class TwoSchemas:
    """A database with Duly's tables in `duly_x`, in `duly_y`, and in `public`."""

    dsn: str

    def settings(self, schema: str) -> StoreSettings:
        return StoreSettings(dsn=self.dsn, schema_name=schema)

    def uses(self) -> tuple[int, int]:
        """How often tables of the own schema, and of the other ones, were read or written so far."""
        with psycopg.connect(self.dsn) as connection:
            ((own, others),) = connection.execute(
                "select sum(uses) filter (where schemaname = %(own)s)::int8, sum(uses) filter (where schemaname <> %(own)s)::int8"
                " from (select schemaname, seq_scan + coalesce(idx_scan, 0) + n_tup_ins + n_tup_upd + n_tup_del as uses"
                " from pg_stat_user_tables) as used",
                {"own": OWN},
            ).fetchall()
        return int(own), int(others)


@pytest.fixture(scope="module")
def two_schemas(postgres_server: PostgresServer) -> Iterator[TwoSchemas]:
    """Migrated at the same moment, as cells of one database may be."""
    name = postgres_server.create()
    made = TwoSchemas(postgres_server.dsn_of(name))
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda schema: migrate(in_schema(made.dsn, schema)), (OWN, OTHER)))
    yield made
    postgres_server.drop(name)


async def test_migrate_makes_the_schema_and_it_is_this_releases(two_schemas: TwoSchemas) -> None:
    for schema in (OWN, OTHER):
        assert await look_at_schema(two_schemas.settings(schema)) is SchemaState.USABLE
        assert compare(in_schema(two_schemas.dsn, schema)) == []
    assert await look_at_schema(two_schemas.settings("duly_z")) is SchemaState.MISSING


async def test_behind_a_pooler_the_schema_of_the_user_must_be_that_of_the_settings(
    two_schemas: TwoSchemas,
) -> None:
    pooled = two_schemas.settings(OWN).model_copy(update={"pooled": True})
    with pytest.raises(SettingsError, match="set search_path = duly_x"):
        await look_at_schema(pooled)
    of_the_user = pooled.model_copy(update={"dsn": in_schema(pooled.dsn, OWN)})
    assert await look_at_schema(of_the_user) is SchemaState.USABLE


def test_no_sql_names_another_schema() -> None:
    texts = ALL_STATEMENTS | {"schema": schema_sql("duly_x")}
    assert {name: found[0] for name, text in texts.items() if (found := _QUALIFIED.search(text))} == {}
    sources = Path(duly_core.__file__).parent.rglob("*.py")
    assert [
        path.name for path in sources if re.search(r"\b(from|into|join|update) public\.", path.read_text())
    ] == []


def test_each_statement_stays_in_its_schema(two_schemas: TwoSchemas) -> None:
    with psycopg.connect(in_schema(two_schemas.dsn, OWN), autocommit=True) as connection:
        strays = {}
        done = 0
        for name, call in prepare_all(connection).items():
            with connection.transaction(force_rollback=True):
                try:
                    connection.execute(call)
                except psycopg.Error as error:
                    if (error.sqlstate or "")[:2] not in ("22", "23"):  # a null where none may be
                        strays[name] = str(error)
                    continue
                done += 1
                # each table and index that was used stays locked until the end of the transaction
                touched = connection.execute(
                    "select distinct relnamespace::regnamespace::text from pg_locks join pg_class on relation = pg_class.oid"
                    " where pid = pg_backend_pid() and database = (select oid from pg_database where datname = current_database())"
                ).fetchall()
                if elsewhere := {schema for (schema,) in touched} - {OWN, "pg_catalog", "pg_toast"}:
                    strays[name] = str(elsewhere)
    assert not strays
    assert done > len(ALL_STATEMENTS) * 0.8


async def test_tasks_of_a_schema_run_without_a_look_at_another(two_schemas: TwoSchemas) -> None:
    before = two_schemas.uses()
    async with Store(two_schemas.settings(OWN)) as store:
        states = TaskStates(store)
        await states.register()
        claimed = await states.claimed()
        await set_results(store, [Result(claimed.task_id, claimed.token, Outcome.SUCCESS)])
    make_roles(in_schema(two_schemas.dsn, OWN))
    raise_fences(two_schemas.settings(OWN), dry_run=True)
    after = two_schemas.uses()
    assert after[0] > before[0] + 10
    assert after[1] == before[1]


def test_a_client_schedules_into_the_schema_whose_function_it_calls(two_schemas: TwoSchemas) -> None:
    with psycopg.connect(in_schema(two_schemas.dsn, OTHER)) as connection:
        connection.execute(
            "insert into lambda (name, owner, version, max_attempts, max_crashes, max_runtime, backoff_initial, backoff_factor,"
            " backoff_max, payload_limit, registered_at, updated_at)"
            " values ('sort', '', '', 1, 1, '1 s', '1 s', 1, '1 s', 100, now(), now())"
        )
    with psycopg.connect(two_schemas.dsn) as connection:  # whose search path is the user's own
        connection.execute("select duly_y.duly_schedule('sort')")
        connection.commit()
        ((in_other, in_public),) = connection.execute(
            "select (select count(*) from duly_y.task_assoc), (select count(*) from public.task_assoc)"
        ).fetchall()
    assert (in_other, in_public) == (1, 0)


async def test_a_notification_wakes_listeners_of_its_schema_alone(two_schemas: TwoSchemas) -> None:
    told: dict[str, list[str]] = {schema: [] for schema in (OWN, OTHER, "public")}
    ready = {schema: asyncio.Event() for schema in told}
    heard = asyncio.Event()
    stop = asyncio.Event()

    def hear(schema: str, lambdas: object) -> None:
        told[schema].append(str(lambdas))
        if "last" in str(lambdas):
            heard.set()

    listeners = [
        asyncio.create_task(
            Listener(
                two_schemas.settings(schema),
                lambda _, lambdas, schema=schema: hear(schema, lambdas),
                ready[schema].set,
            ).run(stop)
        )
        for schema in told
    ]
    try:
        async with asyncio.timeout(10):
            await asyncio.gather(*(each.wait() for each in ready.values()))
            for schema in (OTHER, "public", OWN):
                async with Store(two_schemas.settings(schema)) as store:
                    notifier = Notifier(store)
                    notifier.due_in(timedelta(), [f"of_{schema}" if schema != OWN else "last"])
                    assert notifier._task is not None
                    await notifier._task
            await heard.wait()
    finally:
        stop.set()
        await asyncio.gather(*listeners)
    assert told == {OWN: ["['last']"], OTHER: ["['of_duly_y']"], "public": ["['of_public']"]}
