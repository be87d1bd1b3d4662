"""Keep the incident board: who computes it, what was found, and since when."""

import json
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from duly_core.postgres.arrays import int2s, texts, timestamps
from duly_core.postgres.pool import Store
from duly_core.problems.kinds import Kind
from duly_core.problems.problem import FoundProblem, ranked
from duly_core.problems.statements import PROBLEMS

MOST_PROBLEMS = 300
"""That are kept at a time: the worst."""
STALE_AFTER = timedelta(seconds=60)
"""A board that is older is not what holds now."""
KEPT_FOR = timedelta(days=1)
"""A problem that has ended is forgotten after so long."""
_ABANDONED_AFTER = timedelta(seconds=60)
"""A round that is not published by then is no longer waited for: its Frontend died, or stands still."""


class Board(NamedTuple):
    """What was found last."""

    now: datetime
    """By the store's clock."""
    computed_at: datetime | None
    """None: no Frontend has looked yet."""
    took: timedelta | None
    computed_by: str
    problems: Sequence[FoundProblem]
    """The worst first."""

    @property
    def is_stale(self) -> bool:
        """Whether things may stand differently by now."""
        return self.computed_at is None or self.now - self.computed_at > STALE_AFTER


async def begin(store: Store, by: str, every: timedelta, own: datetime | None = None) -> datetime | None:
    """Take the next round; its begin names it. None: it is another Frontend's, or not yet time.

    Args:
        store: has the board.
        by: who makes the round.
        every: between the begins of two rounds.
        own: the last round of the caller, which is over even if it was not published.

    Raises:
        StoreUnavailableError: ask again.
    """
    asked = {"by": by, "every": every, "own": own, "abandoned_after": _ABANDONED_AFTER}
    rows = await store.run(PROBLEMS["begin_board"], asked)
    return rows[0][0] if rows else None


async def publish(
    store: Store,
    begun_at: datetime,
    problems: Sequence[FoundProblem],
    unread: Collection[Kind] = (),
    *,
    has_others: bool = True,
) -> bool:
    """Keep what a round found, unless another was begun meanwhile; whether it was kept.

    Open problems of kinds that are `unread` stay open, found or not. `has_others`: whether there may be problems of earlier rounds that are open, or to be forgotten.

    Raises:
        StoreUnavailableError: the outcome is unknown; the next round finds it again.
    """
    if (
        not problems
        and not has_others
        and await store.run(PROBLEMS["publish_clear_board"], {"begun_at": begun_at, "kept_for": KEPT_FOR})
    ):
        return True
    kept = {each.fingerprint: each for each in ranked(problems)[:MOST_PROBLEMS]}
    columns = [*kept.items()]
    rows = await store.run(
        PROBLEMS["publish_board"],
        {
            "begun_at": begun_at,
            "fingerprints": texts([fingerprint for fingerprint, _ in columns]),
            "kinds": int2s([int(each.kind) for _, each in columns]),
            "severities": int2s([int(each.severity) for _, each in columns]),
            "subjects": texts([each.subject for _, each in columns]),
            "since": timestamps([each.since_at for _, each in columns]),
            "facts": texts([json.dumps(each.to_facts()) for _, each in columns]),
            "unread": int2s([int(kind) for kind in unread]),
            "kept_for": KEPT_FOR,
        },
    )
    return bool(rows)


async def read(store: Store) -> Board:
    """Return the board as it was published last.

    Raises:
        StoreUnavailableError: ask again.
    """
    ((now, computed_at, took, computed_by),) = await store.run(PROBLEMS["read_board"], {})
    rows = await store.run(PROBLEMS["open_problems"], {"most": MOST_PROBLEMS})
    problems = [each for row in rows if (each := FoundProblem.from_facts(*row)) is not None]
    return Board(now, computed_at, took, computed_by or "", ranked(problems))
