"""The lambda registry: which lambdas exist, and the policy that holds for each."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from psycopg.rows import dict_row

from duly_core.store.pool import Store


@dataclass(frozen=True, slots=True)
class LambdaPolicy:
    """A lambda as its host declares it; the defaults of every lambda are here."""

    name: str
    owner: str = ""
    version: str = ""
    max_attempts: int = 10
    max_crashes: int = 3
    max_runtime: timedelta = timedelta(hours=1)
    backoff_initial: timedelta = timedelta(seconds=1)
    backoff_factor: float = 2.0
    backoff_max: timedelta = timedelta(minutes=10)
    payload_limit: int = 256 * 1024
    crash_window: timedelta = timedelta(hours=72)
    """max_crashes within this time quarantine a task; those longer ago are forgotten."""


@dataclass(frozen=True, slots=True)
class RegisteredLambda:
    """A lambda as the store holds it."""

    policy: LambdaPolicy
    registered_at: datetime = field(compare=False)
    updated_at: datetime = field(compare=False)


_REGISTER = """
insert into lambda (
    name, owner, version, max_attempts, max_crashes, max_runtime,
    backoff_initial, backoff_factor, backoff_max, payload_limit, crash_window, registered_at, updated_at
)
values (
    %(name)s, %(owner)s, %(version)s, %(max_attempts)s, %(max_crashes)s, %(max_runtime)s,
    %(backoff_initial)s, %(backoff_factor)s, %(backoff_max)s, %(payload_limit)s, %(crash_window)s,
    duly_now(), duly_now()
)
on conflict (name) do update set
    owner = excluded.owner, version = excluded.version, max_attempts = excluded.max_attempts,
    max_crashes = excluded.max_crashes, max_runtime = excluded.max_runtime,
    backoff_initial = excluded.backoff_initial, backoff_factor = excluded.backoff_factor,
    backoff_max = excluded.backoff_max, payload_limit = excluded.payload_limit,
    crash_window = excluded.crash_window, updated_at = duly_now()
"""

# Each column by its name: a later release may add some while this one still serves.
_LIST = """
select name, owner, version, max_attempts, max_crashes, max_runtime,
    backoff_initial, backoff_factor, backoff_max, payload_limit, crash_window, registered_at, updated_at
from lambda
order by name
"""

NEW_LAMBDA_CHANNEL = "duly_lambda"
"""Told when lambdas were registered, so that Store Consumers look at their queues at once."""


async def register(store: Store, policies: Sequence[LambdaPolicy]) -> None:
    """Write these policies; the newest declaration of a lambda holds."""
    async with store.connection() as connection, connection.transaction():
        for policy in sorted(policies, key=lambda policy: policy.name):
            values = {name: getattr(policy, name) for name in LambdaPolicy.__slots__}
            await connection.execute(_REGISTER, values)
        await connection.execute("select pg_notify(%s, '')", (NEW_LAMBDA_CHANNEL,))


async def list_lambdas(store: Store) -> list[RegisteredLambda]:
    """Every lambda, by name."""
    async with store.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(_LIST)
        rows = await cursor.fetchall()
    return [
        RegisteredLambda(
            registered_at=row.pop("registered_at"),
            updated_at=row.pop("updated_at"),
            policy=LambdaPolicy(**row),
        )
        for row in rows
    ]
