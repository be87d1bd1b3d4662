"""Some minutes for real on one machine: spikes at each full minute of the run, a trickle, and pauses.

python -m benchmarks.elastic.real --minutes 10
"""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import asyncio
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import duly
from duly_local.options import StackOptions
from duly_local.stack import LocalStack

LAMBDA = "elastic.wait"
SLOTS = 8
RUN_S = 0.5
SPIKE = 300
"""Tasks that are due at each full minute, scheduled 50 s before."""
MOST_WORKERS = 6
_LOOK = 0.5


async def run(minutes: int) -> None:
    """Run, and print what came of it."""
    with tempfile.TemporaryDirectory(prefix="duly-elastic-") as folder:
        options = StackOptions(
            data_directory=Path(folder),
            apps=("benchmarks.elastic.app:app",),
            elastic=True,
            max_workers=MOST_WORKERS,
            slots=SLOTS,
            processes=1,
            ports="free",
        )
        async with LocalStack(options) as stack, duly.AsyncClient(stack.frontend_address) as client:
            async with asyncio.timeout(60):
                while not await client.pools():  # noqa: ASYNC110 (it asks a server)
                    await asyncio.sleep(_LOOK)
            await client.put_pool("worker", target_age=timedelta(seconds=5), idle_time=timedelta(seconds=15))
            await _load(client, minutes)


async def _load(client: duly.AsyncClient, minutes: int) -> None:
    begin = datetime.now().astimezone()
    end = begin + timedelta(minutes=minutes)
    tasks: list[str] = []
    paid_s, peak, none_s, spikes = 0.0, 0, 0.0, 0
    last = begin
    next_second = begin
    while (now := datetime.now().astimezone()) < end:
        (pool,) = await client.pools(["worker"])
        here, passed = pool.alive + pool.starting + pool.draining, (now - last).total_seconds()
        paid_s, peak, last = paid_s + here * passed, max(peak, here), now
        none_s += passed if not here else 0
        spike_at = begin + timedelta(minutes=spikes + 1)
        if now >= spike_at - timedelta(seconds=50) and spike_at < end - timedelta(seconds=20):
            spikes += 1
            new = [duly.NewTask(LAMBDA, RUN_S, at=spike_at) for _ in range(SPIKE)]
            tasks += map(str, await client.schedule_many(new))
        # a trickle in the first 20 s of each minute, then a pause
        if now >= next_second and (now - begin).total_seconds() % 60 < 20:
            next_second = now + timedelta(seconds=1)
            tasks.append(str(await client.schedule(LAMBDA, RUN_S)))
        await asyncio.sleep(_LOOK)
    found = [each for each in await client.get_many(tasks) if each]
    waits = sorted(
        (each.started_at - each.scheduled_at).total_seconds() for each in found if each.started_at is not None
    )
    busy = sum(
        (each.finished_at - each.started_at).total_seconds()
        for each in found
        if each.finished_at and each.started_at
    )
    failed = [each for each in found if each.status is not duly.TaskStatus.SUCCESS]
    print(
        f"{len(found)} tasks in {minutes} min, {len(failed)} not ended in success, {sum(each.crashes for each in found)} crashes\n"
        f"workers: peak {peak}, {paid_s / 3600:.3f} paid hours, none for {none_s:.0f} s\n"
        f"busy share of paid slot time {busy / (paid_s * SLOTS):.1%}; a fixed pool of the peak: {busy / (minutes * 60 * peak * SLOTS):.1%}\n"
        f"wait p50 {waits[len(waits) // 2]:.3f} s, p99 {waits[int(len(waits) * 0.99)]:.3f} s, most {waits[-1]:.3f} s"
    )
    for line in (await client.pools())[0].plan.reasons:  # type: ignore[union-attr]
        print(f"  {line}")


def main() -> None:
    """Run as long as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=int, default=10)
    asyncio.run(run(parser.parse_args().minutes))


if __name__ == "__main__":
    main()
