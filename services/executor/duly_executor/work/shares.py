"""The parts of an Executor's slots for which it asks for work separately: one for each reservation, and the rest."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from duly_core.lambdas.names import base_name
from duly_executor.claims.ledger import HeldClaims
from duly_executor.processes.pool import CallbackPool
from duly_executor.slots.reservations import Reservation
from duly_executor.work.sources import ALL, ControllerSource, HscSource, Queues
from duly_wire.v1 import task_pb2

Source: TypeAlias = ControllerSource | HscSource


@dataclass(slots=True, eq=False)
class WorkShare:
    """Calls for work: those of the rest may bring tasks of any lambda, also of those that have reserved slots."""

    source: Source
    lambdas: frozenset[str]
    reservation: Reservation | None = None
    """None: this is the rest, or that of a lambda that takes batches."""
    batch_lambda: str = ""
    """The lambda that takes batches, if it is that of one."""
    asked: int = 0
    """Tasks that open calls may bring."""

    def room(self, pool: CallbackPool, held_claims: HeldClaims) -> int:
        """Return how many more tasks to ask for; 0: not worth a call yet."""
        if self.batch_lambda:
            return pool.batch_room(self.batch_lambda, self.asked)
        if not pool.reserved:
            return pool.capacity().room(held_claims.unfinished() - pool.beyond_slots() + self.asked)
        now = asyncio.get_running_loop().time()
        return pool.reserved.room(self.reservation, self.asked + pool.crowding(), pool.processes(), now)


def make_shares(
    lambdas: frozenset[str],
    reservations: tuple[Reservation, ...],
    make: Callable[[Queues], Source],
    batch_lambdas: frozenset[str] = frozenset(),
) -> list[WorkShare]:
    """Return the rest, then a share for each reservation, and for each lambda that takes batches: such a call asks for many."""
    shares = []
    in_batches = frozenset(name for name in lambdas if base_name(name) in batch_lambdas)
    if not in_batches:
        shares.append(WorkShare(make(ALL), lambdas))
    elif rest := lambdas - in_batches:
        shares.append(WorkShare(make(Queues((), (), tuple(sorted(in_batches)))), rest))
    for name in sorted(batch_lambdas):
        own = tuple(sorted(each for each in in_batches if base_name(each) == name))
        if own:
            shares.append(WorkShare(make(Queues(own, ())), frozenset(own), batch_lambda=name))
    for each in reservations:
        if each.lambda_name in batch_lambdas:
            continue
        priorities = () if each.priority is None else (task_pb2.Priority.ValueType(each.priority),)
        queues = tuple(sorted(name for name in lambdas if base_name(name) == each.lambda_name))
        only = Queues(queues, priorities)
        shares.append(WorkShare(make(only), frozenset(only.lambdas), each))
    return shares
