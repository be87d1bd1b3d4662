"""A lambda's policy as its host declares it, and the defaults of every lambda."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class LambdaPolicy:
    """What the owner of a lambda declares; attaching a host overwrites it."""

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
    requires: str = ""
    """Labels that a host must have to serve it, as `check_labels` returns them; empty: none."""
    batch_size: int = 0
    """How many tasks one call of its callback takes; 0: it takes one that is no batch."""
    batch_wait: timedelta = timedelta()
    """How long the first task of a batch waits for others."""
    needs: str | None = None
    """What each of its tasks needs of resources, as JSON (`written_needs`); None: nothing."""
