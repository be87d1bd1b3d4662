"""Write what runs kept of attachments, in the transaction that ends them."""

from collections.abc import Sequence

from duly_core.attachments.rules import NotStored
from duly_core.attachments.store import key_of, lambdas_of, lock_uses, write_uses
from duly_core.postgres.pool import Connection
from duly_core.tasks.task import Result, Token


async def keep_uses(connection: Connection, results: Sequence[Result]) -> dict[Token, NotStored]:
    """Write what runs kept, in place of what runs before kept; leave out and return what is not stored, the first of each.

    The transaction has written how these runs ended.

    Raises:
        StoreUnavailableError: the outcome is unknown.
    """
    keeping = [each for each in results if each.attachments]
    if not keeping:
        return {}
    lambdas = await lambdas_of(connection, {each.task_id for each in keeping})
    known = [each for each in keeping if each.task_id in lambdas]
    lacking = await lock_uses(
        connection, ((lambdas[each.task_id], use) for each in known for use in each.attachments)
    )
    missing: dict[Token, NotStored] = {}
    kept = {}
    for each in known:
        name = lambdas[each.task_id]
        stored = []
        for use in each.attachments:
            if (problem := lacking.get(key_of(name, use))) is not None:
                missing.setdefault(each.token, problem)
            else:
                stored.append(use)
        kept[each.task_id] = name, stored
    await write_uses(connection, kept, by_run=True)
    return missing
