"""The lambda registry: which lambdas exist, and the policy that holds for each."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime

from psycopg.rows import dict_row

from duly_core.store.lambda_policy import LambdaPolicy
from duly_core.store.pool import Store


@dataclass(frozen=True, slots=True)
class RegisteredLambda:
    """A lambda as the store holds it."""

    policy: LambdaPolicy
    registered_at: datetime = field(compare=False)
    updated_at: datetime = field(compare=False)


_POLICY = [field.name for field in fields(LambdaPolicy)]
_REGISTER = f"""
insert into lambda ({", ".join(_POLICY)}, registered_at, updated_at)
values ({", ".join(f"%({name})s" for name in _POLICY)}, duly_now(), duly_now())
on conflict (name) do update set {", ".join(f"{name} = excluded.{name}" for name in _POLICY)}, updated_at = duly_now()
"""  # noqa: S608 (the names are our own)

# Each column by its name: a later release may add some while this one still serves.
_LIST = f"select {', '.join(_POLICY)}, registered_at, updated_at from lambda order by name"  # noqa: S608 (as above)

_REPLACED = f"select {', '.join(_POLICY)} from lambda where name = any(%(names)s) order by name for update"  # noqa: S608 (as above)

NEW_LAMBDA_CHANNEL = "duly_lambda"
"""Told when lambdas were registered, so that Store Consumers look at their queues at once."""


async def register(store: Store, policies: Sequence[LambdaPolicy]) -> dict[str, LambdaPolicy]:
    """Write these policies, and return those that they replace, by name; the newest declaration of a lambda holds."""
    rows = [asdict(policy) for policy in sorted(policies, key=lambda policy: policy.name)]
    async with (
        store.connection() as connection,
        connection.transaction(),
        connection.cursor(row_factory=dict_row) as cursor,
    ):
        await cursor.execute(_REPLACED.encode(), {"names": [row["name"] for row in rows]})
        replaced = [LambdaPolicy(**row) for row in await cursor.fetchall()]
        await cursor.executemany(_REGISTER.encode(), rows)
        await cursor.execute("select pg_notify(%s, '')", (NEW_LAMBDA_CHANNEL,))
    return {policy.name: policy for policy in replaced}


async def list_lambdas(store: Store) -> list[RegisteredLambda]:
    """Every lambda, by name."""
    async with store.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(_LIST.encode())
        rows = await cursor.fetchall()
    return [
        RegisteredLambda(
            registered_at=row.pop("registered_at"),
            updated_at=row.pop("updated_at"),
            policy=LambdaPolicy(**row),
        )
        for row in rows
    ]
