"""Who outlives `duly up` when it is killed: services stay for workers that drain, Postgres for both.

Each keepalive pipe is a pipe. Those who need something inherit the writing end; what they need waits for its end of file.
"""

import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta

from duly_core.process.parent import KEEPALIVE_PIPE
from duly_local.child_spec import ChildSpec


@dataclass
class KeepalivePipes:
    """The keepalive pipes of one stack; without `open`, nobody outlives us."""

    of_postgres: int | None = None
    """What `EmbeddedPostgres.keepalive` says; None: the Postgres is not ours."""
    stay: timedelta = timedelta()
    """The longest that services outlive us."""
    _watched: int | None = None
    _held: int | None = None
    _own: list[int] = field(default_factory=list)

    def open(self) -> None:
        """Make the pipe between workers and services."""
        self._watched, self._held = os.pipe()
        self._own = [self._watched, self._held]

    def of_service(self, spec: ChildSpec) -> ChildSpec:
        """Have a service outlive us for workers, and Postgres for the service."""
        if self._watched is None:
            return spec
        told = {KEEPALIVE_PIPE: f"{self._watched}:{self.stay.total_seconds():g}"}
        return replace(spec, env={**spec.env, **told}, inherits=(self._watched, *self._postgres))

    def of_worker(self, spec: ChildSpec) -> ChildSpec:
        """Have services and Postgres outlive us for a worker."""
        return spec if self._held is None else replace(spec, inherits=(self._held, *self._postgres))

    def close(self) -> None:
        """Close our ends, once all processes that inherit them have ended."""
        self._watched = self._held = None
        while self._own:
            with suppress(OSError):
                os.close(self._own.pop())

    @property
    def _postgres(self) -> tuple[int, ...]:
        return () if self.of_postgres is None else (self.of_postgres,)
