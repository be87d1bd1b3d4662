"""Tells of what there may be problems, in one small read: a round leaves out the reads that would find nothing."""

from datetime import timedelta
from typing import NamedTuple

from duly_core.config.live_sections import START_WITHIN
from duly_core.postgres.pool import Store
from duly_core.problems.installation import TOKENS_WITHIN
from duly_core.problems.statements import PROBLEMS
from duly_core.problems.store import KEPT_FOR


class Signs(NamedTuple):
    """Whether there is anything of each, in the order of the statement."""

    breakers: bool = True
    """That are not closed."""
    hosts: bool = True
    parked: bool = True
    """Tasks that wait for gates or resources."""
    dead_letters: bool = True
    blocked_sessions: bool = True
    failing_pools: bool = True
    expiring_tokens: bool = True
    failing_targets: bool = True
    problems: bool = True
    """Of earlier rounds: open ones, or such as are to be forgotten."""
    shortest_objective: timedelta | None = START_WITHIN[0]
    """Within which some lambdas must start, by objectives of their own; None: there are none."""


ALL = Signs()
"""While it is not known."""


async def read_signs(store: Store) -> Signs:
    """Return them.

    Raises:
        StoreUnavailableError: ask again.
    """
    (row,) = await store.run(
        PROBLEMS["problem_signs"], {"tokens_within": TOKENS_WITHIN, "kept_for": KEPT_FOR}
    )
    return Signs(*row)
