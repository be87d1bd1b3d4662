"""Reads when breakers opened and closed: the audit log has each move."""

import json
from datetime import datetime
from typing import NamedTuple

from duly_core.gates.breaker_rules import State
from duly_core.postgres.pool import Store
from duly_core.postgres.statements import load

_MOST = 100
_READ = load("gates/breaker_history.sql")["breaker_moves"].sql.encode()


class Move(NamedTuple):
    """A breaker opened or closed."""

    at: datetime
    is_open: bool
    reason: str


async def read_moves(store: Store, lambda_name: str, until: datetime) -> list[Move]:
    """Return when the breaker of a lambda opened and closed, oldest first; half-open times count as open.

    Raises:
        StoreUnavailableError: ask again.
    """
    parameters = {"until": until, "lambda": json.dumps(lambda_name), "most": _MOST}
    async with store.connection() as connection, connection.cursor() as cursor:
        await cursor.execute(_READ, parameters)
        rows = await cursor.fetchall()
    moves = [(at, json.loads(request)) for at, request in reversed(rows)]
    return [
        Move(at, told["to"] == State.OPEN, told["reason"])
        for at, told in moves
        if told["lambda"] == lambda_name and told["to"] != State.HALF_OPEN
    ]
