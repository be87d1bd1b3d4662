"""The steps of a move, and which is next. What was done is read from both sides, so a move goes on after any kill. No I/O."""

from dataclasses import dataclass
from enum import StrEnum

CLOSE = 1 << 20
"""Bytes of WAL that the copy may be behind when the fence is put up: it holds up the cell's callers for as long as these take."""


class Step(StrEnum):
    """In their order. Until SWITCH the source is the cell, and the move can be given up; after it the target is."""

    PREPARE = "prepare"
    """Make the schema at the target, and empty it of what a new store begins with."""
    PUBLISH = "publish"
    """Stop what tidies partitions, publish the tables at the source, and make a slot."""
    SUBSCRIBE = "subscribe"
    """Subscribe at the target: Postgres copies the tables."""
    COPY = "copy"
    """Wait until the tables are copied and the target is close behind."""
    FENCE = "fence"
    """Refuse every write at the source. From here on callers of this cell wait."""
    SWITCH = "switch"
    """Wait for the rest, copy what is not replicated, compare both sides, and write the target's address into the directory."""
    TELL = "tell"
    """Write the directory to the other cells and to the source."""
    CLEAN = "clean"
    """Remove subscription, slot and publication."""
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Facts:
    """What both sides say."""

    is_prepared: bool
    """The target has this schema, and no rows."""
    is_published: bool
    has_slot: bool
    is_subscribed: bool
    tables_to_copy: int
    """Tables that the target has not copied yet."""
    behind: int
    """Bytes of WAL that the target has not confirmed."""
    is_fenced: bool
    is_switched: bool
    """The target says that it is the cell."""
    is_told: bool
    """All cells that answer, and the source, have the target's address."""


def next_step(facts: Facts) -> Step:
    """Return the next step; each may be repeated."""
    if facts.is_switched:
        if not facts.is_told:
            return Step.TELL
        return Step.CLEAN if facts.is_subscribed or facts.is_published or facts.has_slot else Step.DONE
    if not facts.is_subscribed:
        if not facts.is_prepared:
            return Step.PREPARE
        return Step.SUBSCRIBE if facts.is_published and facts.has_slot else Step.PUBLISH
    if facts.tables_to_copy:
        return Step.COPY  # also behind a fence, which is what a move left that was given up in the middle
    if facts.is_fenced:
        return Step.SWITCH
    return Step.COPY if facts.behind > CLOSE else Step.FENCE
