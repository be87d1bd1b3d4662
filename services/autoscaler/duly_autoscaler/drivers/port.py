"""What a driver does, whatever it stands on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from duly_core.errors import DulyError
from duly_core.pools.rules import Pool


class DriverError(DulyError):
    """A driver could not do what it was told; says why, for people."""


@dataclass(frozen=True, slots=True)
class Order:
    """How many workers a pool is to have."""

    pool: Pool
    desired: int
    """All together, those that start among them."""
    start: int
    """How many of them are to be started now; none: they run or start already."""
    workers: tuple[str, ...] = ()
    """The hosts that report as workers of the pool, those that drain among them."""


class Driver(Protocol):
    """Starts and ends workers. Each call has a deadline, after which it is cancelled."""

    @property
    def ends_workers(self) -> bool:
        """Whether it ends workers itself when fewer are desired, with SIGTERM. False: the autoscaler chooses which drain."""
        ...

    async def ensure(self, order: Order) -> None:
        """Have so many workers run. It may be told the same again, also by another autoscaler.

        Raises:
            DriverError: it cannot.
        """
        ...

    async def drain(self, pool: Pool, host_ids: Sequence[str]) -> None:
        """Have these workers drain and end at once; they are told so in the answer to their next report, too.

        Raises:
            DriverError: it cannot.
        """
        ...

    async def close(self) -> None:
        """End what is the driver's own."""
        ...
