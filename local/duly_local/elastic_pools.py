"""Declares the lambdas of an application, and the pool of workers that runs them: in a process of its own, which imports it.

Started by `duly up --elastic` only: python -m duly_local.elastic_pools POOL MODULE:APP ADDRESS MOST
"""

import asyncio
import os
import sys
from collections.abc import Iterator
from datetime import timedelta

import duly
from duly.callbacks.loading import load_app
from duly.keep import KEEP
from duly_core.process.parent import PARENT_PID, die_with_parent
from duly_executor.settings import ExecutorSettings

_PATIENCE = timedelta(minutes=1)
_MOST_NAMED = 100


async def declare(pool: str, application: str, address: str, max_workers: int | None) -> list[str]:
    """Declare the pool of an application; return what to tell people."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "duly_local.elastic_pools",
        pool,
        application,
        address,
        str(max_workers or 0),
        env=os.environ | {PARENT_PID: str(os.getpid())},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(_PATIENCE.total_seconds()):
            said, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        return [f"the pool of {application} was not declared within {_PATIENCE.total_seconds():g} s"]
    return said.decode(errors="replace").strip().splitlines()


def _declare(pool: str, application: str, address: str, most: int) -> Iterator[str]:
    app = load_app(application)
    names = [each.name for each in app.lambdas()]
    with duly.Client(address) as client:
        yield from client.register(app)
        (before,) = client.pools([pool]) or (None,)
        maximum = most or (before.maximum if before else os.cpu_count() or 1)
        executor = ExecutorSettings.load()
        client.put_pool(
            pool,
            lambdas=names if len(names) <= _MOST_NAMED else ["*"],
            driver=pool,
            maximum=maximum,
            slots=executor.processes * executor.slots,
            note=KEEP if before else "declared by `duly up --elastic`",
        )
    yield (
        f"pool {pool}: 0 to {maximum} workers for {application}; `duly autoscaler explain` says why so many, "
        "`duly pools set` changes it"
    )


def main() -> None:
    """Declare, and print what to tell people."""
    die_with_parent()
    pool, application, address, most = sys.argv[1:]
    try:
        for line in _declare(pool, application, address, int(most)):
            print(line, flush=True)  # noqa: T201 (the parent shows it)
    except duly.DulyError as error:
        print(f"the pool of {application} cannot be declared: {error}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
