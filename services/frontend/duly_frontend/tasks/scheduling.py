"""Schedule in steps. Each step takes the items of a call, and decides about some of them; the last answers all."""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import TypeAlias

from duly_core.access.roles import Action
from duly_core.lambdas.declarations import pinned_name
from duly_core.lambdas.ramps import Ramp, together
from duly_core.postgres.pool import Store
from duly_core.rpc.requests.new_tasks import ProblemUnlessRepeatedError, new_task, plain_tasks
from duly_core.rpc.requests.problem import Problem
from duly_core.rpc.requests.resource_needs import ResourceCache, read_needs, resource_needs
from duly_core.tasks.schedule import find_repeated
from duly_core.tasks.store import get_tasks
from duly_core.tasks.task import NewTask, Scheduled, Scheduling
from duly_core.traffic.slices import Steps
from duly_frontend.access.reach import refused
from duly_frontend.limits.scheduling_quotas import SchedulingQuotas
from duly_frontend.tasks.schedule_answers import add_created, add_result
from duly_wire.queue_names import QueueName
from duly_wire.v1 import frontend_pb2, task_pb2

_A_STEP = 100
"""Items."""
_FEW = 4
"""Items that are checked and answered one by one: columns pay with more of them."""

Needed: TypeAlias = tuple[Mapping[int, Sequence[task_pb2.ResourceNeed] | Problem], Mapping[str, bool]]
"""What items need, by their place, and whether the resources that they name have keys."""


@dataclass(slots=True, eq=False)
class Item:
    """A task of a call, and what became of it so far."""

    asked: frontend_pb2.NewTask
    task: NewTask | None = None
    """Once it was found valid."""
    problem: Problem | None = None
    """Why it is not written. With a task it may have been written before: then that is the answer."""
    scheduled: Scheduled | None = None
    """The store's answer."""


async def needs_of(items: Sequence[Item], resources: ResourceCache) -> Needed:
    """Return what the items need of resources.

    Raises:
        StoreUnavailableError: the resources that items name could not be read.
    """
    named = {
        place: read_needs(item.asked.resources) for place, item in enumerate(items) if item.asked.resources
    }
    return named, await resources.kinds(named.values())


def checking(
    items: Sequence[Item],
    payload_limits: Mapping[str, int],
    horizon: timedelta,
    refused_names: Collection[str],
    needed: Needed,
) -> Steps[None]:
    """Hold each item against the rules, in steps: each has a task or a problem afterwards, some have both."""
    named, _ = needed
    for start in range(0, len(items), _A_STEP):
        if start:
            yield
        some = items[start : start + _A_STEP]
        plain = (
            None
            if refused_names or named or len(some) <= _FEW
            else plain_tasks([item.asked for item in some], payload_limits, horizon)
        )
        if plain is None:
            yield from _checking_each(
                items, range(start, start + len(some)), payload_limits, horizon, refused_names, needed
            )
            continue
        for item, task in zip(some, plain, strict=True):
            item.task = task


def _checking_each(
    items: Sequence[Item],
    places: range,
    payload_limits: Mapping[str, int],
    horizon: timedelta,
    refused_names: Collection[str],
    needed: Needed,
) -> Steps[None]:
    named, kinds = needed
    for place in places:
        item = items[place]
        asked = item.asked
        if asked.attachments:  # a hundred take as long as a step
            yield
        try:
            if refused_names and getattr(asked, "lambda") in refused_names:
                raise refused(Action.SCHEDULE, getattr(asked, "lambda"))
            needs = resource_needs(named[place], kinds, getattr(asked, "lambda")) if place in named else ()
            item.task = new_task(asked, payload_limits, horizon, needs)
        except Problem as problem:
            item.problem = problem
        except ProblemUnlessRepeatedError as late:
            item.task, item.problem = late.task, late.problem


def send_by_ramps(
    items: Sequence[Item], ramps: Mapping[str, Ramp], payload_limits: Mapping[str, int]
) -> None:
    """Send the tasks of lambdas with a ramp to its version: so many as it says, of tasks without keys.

    Keys are not shared between the queues of a lambda: with one, a task could be there twice.
    """
    for item in items:
        task = item.task
        if task is None or task.idempotency_key or task.unique is not None:
            continue
        ramp = ramps.get(task.lambda_name)
        if ramp is None:
            continue
        session = task.session.key if task.session is not None else ""
        if not ramp.takes(task.lambda_name, together(session, task.fair_key or "", task.task_id)):
            continue
        queue = pinned_name(task.lambda_name, ramp.version)
        if len(task.payload) <= payload_limits.get(
            queue, -1
        ):  # else the version takes none that are so large
            item.task = task._replace(lambda_name=queue)


async def find_elsewhere(items: Sequence[Item], store: Store) -> bool:
    """Answer repeats of tasks that a ramp sent to another queue of their lambda than it does now; return whether there are some.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    conflicts = {
        item.task.task_id: item
        for item in items
        if item.task is not None
        and item.scheduled is not None
        and item.scheduled.verdict is Scheduling.CONFLICT
        and item.task.idempotency_key is None
        and "@" not in getattr(item.asked, "lambda")
    }
    if not conflicts:
        return False
    rows = await get_tasks(store, conflicts, most_bytes=None)
    moved = []
    for task_id, item in conflicts.items():
        queue = QueueName.parse(rows[task_id]["lambda"]) if task_id in rows else None
        if queue is None or item.task is None:
            continue
        if (queue.lambda_name, queue.domain, queue.labels) == (getattr(item.asked, "lambda"), "", ""):
            moved.append((item, item.task._replace(lambda_name=str(queue))))
    found = await find_repeated(store, [task for _, task in moved])
    for (item, _), scheduled in zip(moved, found, strict=True):
        item.scheduled = scheduled or item.scheduled
    return bool(moved)


def take_quotas(items: Sequence[Item], quotas: SchedulingQuotas) -> None:
    """Count each item that is to be written; one for which a quota has nothing left gets a problem."""
    for item in items:
        if item.problem is None and item.task is not None:
            item.problem = quotas.take(item.task)


async def find_repeats(items: Sequence[Item], store: Store) -> None:
    """Answer those items that have a problem now and were written before.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    late = [(item, item.task) for item in items if item.problem is not None and item.task is not None]
    if late:
        found = await find_repeated(store, [task for _, task in late])
        for (item, _), scheduled in zip(late, found, strict=True):
            item.scheduled = scheduled


def by_keys(items: Sequence[Item]) -> Iterator[tuple[Sequence[Item], bool]]:
    """Yield the items without unique keys, then those with some. If those have sessions, in which the order counts: runs of them."""
    unique = [item for item in items if item.task is not None and item.task.unique is not None]
    if not unique:
        yield items, False
    elif any(item.task.session for item in unique if item.task is not None):
        for is_unique, some in groupby(
            items, lambda item: item.task is not None and item.task.unique is not None
        ):
            yield list(some), is_unique
    else:
        yield [item for item in items if item.task is None or item.task.unique is None], False
        yield unique, True


async def write(
    items: Sequence[Item],
    write_tasks: Callable[[Sequence[NewTask]], Awaitable[Sequence[Scheduled]]],
    most: int,
) -> None:
    """Write the items without a problem, so many at a time: other calls have their turn between. What they use counts, too.

    Raises:
        StoreUnavailableError: nothing is known of the outcome.
    """
    for some in _portions([item for item in items if item.problem is None], most):
        answers = await write_tasks([item.task for item in some if item.task is not None])
        for item, scheduled in zip(some, answers, strict=True):
            item.scheduled = scheduled


def _portions(items: Sequence[Item], most: int) -> Iterator[Sequence[Item]]:
    """Yield up to `most` items at a time, with up to `most` attachments unless one item has more."""
    start = uses = 0
    for place in [
        place for place, item in enumerate(items) if item.task is not None and item.task.attachments
    ]:
        more = len(items[place].task.attachments)  # type: ignore[union-attr]  # as above
        if uses + more > most and place > start:
            yield from _portions_by_count(items[start:place], most)
            start, uses = place, 0
        uses += more
    yield from _portions_by_count(items[start:], most)


def _portions_by_count(items: Sequence[Item], most: int) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), most):
        yield items[start : start + most]


def answering(items: Sequence[Item]) -> Steps[tuple[frontend_pb2.ScheduleResponse, int]]:
    """Return the answer to the call, and how many of its tasks are not there; in steps."""
    response = frontend_pb2.ScheduleResponse()
    missing = 0
    for start in range(0, len(items), _A_STEP):
        if start:
            yield
        some = items[start : start + _A_STEP]
        answers = [item.scheduled for item in some if item.scheduled is not None]
        if len(answers) == len(some) > _FEW and add_created(
            response, [item.asked.task_id for item in some], answers
        ):
            continue
        for item in some:
            if item.scheduled is not None:
                missing += not add_result(response, item.asked.task_id, item.scheduled)
            elif item.problem is not None:
                response.results.add(error=item.problem.to_wire())
                missing += 1
    return response, missing
