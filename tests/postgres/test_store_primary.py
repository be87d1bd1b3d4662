"""Several servers in one DSN: one that is cut off keeps nobody waiting, and is left for the primary of now."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import monotonic

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from duly_core.errors import StoreUnavailableError
from duly_core.postgres.connection import Connection, servers_of
from duly_core.postgres.health import HealthFollower
from duly_core.postgres.pool import Store, connect_arguments
from duly_core.postgres.primary import _waited_for, leave_lost_server
from duly_core.postgres.settings import StoreSettings
from tests.chaos.proxy import Proxy

LONG = timedelta(seconds=20)
"""The bounds of every wait, which nobody must need."""
SOON = 8.0
"""Seconds until Postgres is found again: about three, and room for a busy machine."""


@dataclass
class Pair:
    """Two ways to one Postgres, which look like two servers."""

    first: Proxy
    second: Proxy
    settings: StoreSettings


@pytest.fixture
async def pair(dsn: str) -> AsyncIterator[Pair]:
    parts = conninfo_to_dict(dsn)
    async with AsyncExitStack() as stack:
        first, second = [
            await stack.enter_async_context(Proxy(str(parts["host"]), int(parts["port"]))) for _ in range(2)
        ]
        several = make_conninfo(
            dsn,
            host="127.0.0.1,127.0.0.1",
            port=f"{first.port},{second.port}",
            target_session_attrs="read-write",
        )
        settings = StoreSettings(
            dsn=several,
            connect_timeout=LONG,
            statement_timeout=LONG,
            acquire_timeout=timedelta(seconds=1),
            unhealthy_after=2 * LONG,
        )
        yield Pair(first, second, settings)


async def test_a_connection_does_not_wait_for_a_server_that_is_cut_off(pair: Pair) -> None:
    await pair.first.blackhole()

    began = monotonic()
    async with await Connection.connect(**connect_arguments(pair.settings)) as connection:
        took = monotonic() - began
        assert connection.info.port == pair.second.port

    assert took < SOON
    assert pair.first.connections <= 1


async def test_the_first_server_of_the_list_is_taken_if_it_answers(pair: Pair) -> None:
    ports = []
    for _ in range(3):
        async with await Connection.connect(**connect_arguments(pair.settings)) as connection:
            ports.append(connection.info.port)

    assert ports == [pair.first.port] * 3
    assert pair.second.connections == 0


async def test_when_no_server_can_be_used_the_error_says_why_for_each(pair: Pair) -> None:
    await pair.first.refuse()
    await pair.second.refuse()

    with pytest.raises(psycopg.OperationalError) as caught:
        await Connection.connect(**connect_arguments(pair.settings))

    for proxy in (pair.first, pair.second):
        assert f"127.0.0.1:{proxy.port}: " in str(caught.value)


class Service:
    """Takes what health says of it."""

    async def set_serving(self, *, serving: bool) -> None:
        """Serve or not."""


async def test_statements_that_hang_at_a_server_that_is_cut_off_end_soon_and_others_go_to_the_new_primary(
    pair: Pair,
) -> None:
    stop = asyncio.Event()
    async with Store(pair.settings) as store:
        await store.ping()
        following = asyncio.ensure_future(HealthFollower(Service(), [store], 2 * LONG).run(stop))
        hanging = [asyncio.ensure_future(store.ping()) for _ in range(4)]
        await asyncio.gather(*hanging)

        await pair.first.blackhole()
        began = monotonic()
        hanging = [asyncio.ensure_future(store.ping()) for _ in range(4)]
        failures = await asyncio.gather(*hanging, return_exceptions=True)
        async with asyncio.timeout(LONG.total_seconds()):
            while True:
                try:
                    await store.ping()
                    break
                except StoreUnavailableError:
                    continue
        took = monotonic() - began
        stop.set()
        await following

    assert {type(failure) for failure in failures} <= {StoreUnavailableError, type(None)}
    assert took < SOON


async def test_the_password_is_not_read_while_no_statement_waits(pair: Pair, tmp_path: Path) -> None:
    read = tmp_path / "read"
    command = ("sh", "-c", f"touch {read}; echo secret")
    settings = pair.settings.model_copy(update={"password_command": command})

    hung_up = await leave_lost_server(settings)

    assert hung_up == 0
    assert not read.exists()


async def test_a_server_that_is_waited_for_is_asked_by_its_name_which_its_certificate_has(pair: Pair) -> None:
    named = StoreSettings(dsn=make_conninfo(pair.settings.dsn, host="localhost,localhost"))
    arguments = connect_arguments(named)
    async with await Connection.connect(**arguments) as connection:
        connection.lent_at = asyncio.get_running_loop().time() - LONG.total_seconds()

        waited_for = _waited_for(servers_of(arguments))

    (asked,) = waited_for.values()
    assert (asked["host"], asked["port"]) == ("localhost", str(pair.first.port))
    assert asked["hostaddr"] == "127.0.0.1"


async def test_postgres_ends_the_sessions_of_a_machine_that_is_gone_without_a_word(store: Store) -> None:
    names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count")

    async with await Connection.connect(**connect_arguments(store.settings)) as connection:
        cursor = await connection.execute(
            "select inet_server_addr() is not null, array(select current_setting(unnest(%s::text[]))::int4)",
            [list(names)],
        )
        (is_tcp, (idle, interval, count)), *_ = await cursor.fetchall()

    assert is_tcp
    assert 0 < idle + interval * count <= 30
