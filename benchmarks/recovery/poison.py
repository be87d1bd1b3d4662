"""What tasks that end their process cost the others: in the same pool, and in another one."""

import statistics
import time

import duly
from benchmarks.recovery.bench import Bench, running
from benchmarks.recovery.kills import APP

NEIGHBOURS = "benchmarks.recovery.app:neighbours"
_LONGEST = 300.0


async def measure(tasks: int, parts: list[float], rounds: int) -> dict[str, float]:
    """Tasks a second of two pools at the same time, without poison and with each part of it, in turn in one run."""
    rates: dict[tuple[float, str], list[float]] = {}
    async with running(apps=(APP, NEIGHBOURS), profile="embedded", processes=2, slots=4) as bench:
        await _rates(bench, tasks, 0)  # warm up
        for _ in range(rounds):
            for part in (0.0, *parts):
                for pool, rate in (await _rates(bench, tasks, part)).items():
                    rates.setdefault((part, pool), []).append(rate)
    figures = {
        f"{pool}, {part:.0%} poison (tasks/s)": statistics.median(values)
        for (part, pool), values in sorted(rates.items())
    }
    for pool in ("same pool", "other pool"):
        without = statistics.median(rates[0.0, pool])
        for part in parts:
            ratio = statistics.median(rates[part, pool]) / without
            figures[f"{pool}, {part:.0%} poison / none"] = ratio
    return figures


async def _rates(bench: Bench, tasks: int, part: float) -> dict[str, float]:
    """So many good tasks in each pool; poison beside those of the first, spread evenly."""
    wanted = []
    owed = 0.0
    for _ in range(tasks):
        wanted += [duly.NewTask("recovery.good"), duly.NewTask("recovery.elsewhere")]
        owed += part
        if owed >= 1:
            owed -= 1
            wanted.append(duly.NewTask("recovery.poison"))
    began = time.time()
    scheduled = await bench.client.schedule_many(wanted)
    names = [(task.task_id, new.lambda_name) for task, new in zip(scheduled, wanted, strict=True)]
    rates = {}
    for pool, lambda_name in (("other pool", "recovery.elsewhere"), ("same pool", "recovery.good")):
        starts = await bench.started([each for each, name in names if name == lambda_name], 0, _LONGEST)
        last = max(bench.starts_of(each)[-1].at for each in starts)
        rates[pool] = tasks / (last - began)
    ended = await bench.client.wait_many(scheduled)
    lost = [
        task
        for task in ended
        if task.lambda_name != "recovery.poison" and task.status is not duly.TaskStatus.SUCCESS
    ]
    if lost:
        message = f"{len(lost)} tasks beside poison did not succeed; the first: {lost[0]}"
        raise RuntimeError(message)
    return rates
