"""The only worker of a machine is killed while it runs twenty tasks: how soon the first and the last of them run again."""

import duly
from benchmarks.recovery.bench import Bench, children_of, kill, parent_of, running
from benchmarks.recovery.kills import APP

_TASKS = 20
_AGAIN_S = 4.0
"""So long their second runs take: were they to run in turns, the last would show it."""
_LONGEST = 60.0


async def measure(rounds: int) -> dict[str, list[float]]:
    """Count from the kill, so with the start of the next worker, which the stack's supervisor brings about."""
    figures: dict[str, list[float]] = {"first of 20 tasks": [], "last of 20 tasks": []}
    async with running(apps=(APP,), profile="embedded", processes=2, slots=_TASKS // 2) as bench:
        for number in range(rounds):
            first, last = await _round(bench, number)
            figures["first of 20 tasks"].append(first)
            figures["last of 20 tasks"].append(last)
            print(f"  first {first:.3f} s, last {last:.3f} s", flush=True)
            await bench.ready()
    return figures


async def _round(bench: Bench, number: int) -> tuple[float, float]:
    go = bench.until_file(f"crowd-{number}")
    scheduled = await bench.client.schedule_many(
        duly.NewTask("recovery.hold", {"until": str(go), "again": _AGAIN_S}) for _ in range(_TASKS)
    )
    tasks = [task.task_id for task in scheduled]
    before = await bench.started(tasks, 0, _LONGEST)
    controller = parent_of(parent_of(next(iter(before.values())).pid))
    killed_at = kill([controller, *children_of(controller)])
    again = await bench.started(tasks, killed_at, _LONGEST)
    go.touch()
    ended = await bench.client.wait_many(scheduled)
    if wrong := [task for task in ended if task.status is not duly.TaskStatus.SUCCESS or task.crashes != 1]:
        message = f"{len(wrong)} tasks did not end as they should; the first: {wrong[0]}"
        raise RuntimeError(message)
    starts = [start.at - killed_at for start in again.values()]
    return min(starts), max(starts)
