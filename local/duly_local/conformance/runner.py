"""Runs the duties one after the other against a worker, and says what came of each."""

import asyncio
import tempfile
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from duly_local.conformance.duties import DUTIES, Duty
from duly_local.conformance.server import ScriptedDuly
from duly_local.conformance.stage import BrokenError, NotTestedError, Stage
from duly_local.conformance.tasks import Tasks

Verdict = Literal["pass", "fail", "not tested"]


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of a duty."""

    duty: Duty
    verdict: Verdict
    reason: str = ""


async def judge(
    command: tuple[str, ...],
    *,
    listen: str,
    lease: timedelta,
    patience: timedelta,
    only: Collection[str] = (),
    log: Path | None = None,
    told: Callable[[Judged], None] = lambda _: None,
    on_start: Callable[[str, Mapping[str, str]], None] = lambda *_: None,
) -> list[Judged]:
    """Judge a worker by each duty.

    Args:
        command: starts the worker; empty: somebody else does.
        listen: `host:port` to serve on; port 0: any.
        lease: claim_timeout and heartbeat_timeout.
        patience: how long the worker may take for what is to be done at once.
        only: the names of the duties; none: all.
        log: where the worker's output goes; None: nowhere.
        told: called with each verdict.
        on_start: called with the address, and the environment of the worker.
    """
    tasks = Tasks(lease)
    duly = ScriptedDuly(tasks)
    address = await duly.start(listen)
    with _folder() as folder:
        environment = _environment(address, lease, folder)
        on_start(address, environment)
        stage = Stage(duly, tasks, folder, command, environment, patience, log)
        judged = []
        try:
            for duty in sorted(DUTIES, key=lambda each: each.at_the_end):
                if not only or duty.name in only:
                    judged.append(await _judge(duty, stage))
                    told(judged[-1])
        finally:
            await stage.end()
            await duly.stop()
    return judged


async def _judge(duty: Duty, stage: Stage) -> Judged:
    try:
        if not duty.at_the_end:
            await stage.worker()
        await duty.play(stage)
    except NotTestedError as error:
        return Judged(duty, "not tested", str(error))
    except BrokenError as error:
        return Judged(duty, "fail", str(error))
    except Exception as error:  # noqa: BLE001 (a worker may send anything)
        last = traceback.extract_tb(error.__traceback__)[-1]
        return Judged(duty, "fail", f"{type(error).__name__}: {error} ({last.name})")
    finally:
        await stage.clear()
    return Judged(duty, "pass")


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder for the files of conformance.tick and the worker's log; kept if something goes wrong."""
    with tempfile.TemporaryDirectory(prefix="duly-conformance-") as name:
        yield Path(name)


def _environment(address: str, lease: timedelta, folder: Path) -> dict[str, str]:
    """Return what a worker needs to know: one variable for all, and those of Duly's own worker."""

    def seconds(part: float) -> str:
        return f"{round(lease.total_seconds() * part * 1000)}ms"

    return {
        "DULY_CONFORMANCE_ADDRESS": address,
        "DULY_CONTROLLER_FRONTEND_ADDRESS": address,
        "DULY_CONTROLLER_HSC_ADDRESS": address,
        "DULY_CONTROLLER_REPORT_INTERVAL": "2s",
        "DULY_EXECUTOR_HSC_ADDRESS": address,
        "DULY_EXECUTOR_CANCEL_GRACE": "2s",
        "DULY_EXECUTOR_NEIGHBOUR_GRACE": "1s",
        "DULY_EXECUTOR_JOURNAL_FOLDER": str(folder / "journals"),
        "DULY_QUEUE_BACKEND": "store",
        "DULY_TIMING_HEARTBEAT_PERIOD": seconds(0.2),
        "DULY_TIMING_HEARTBEAT_DEADLINE": seconds(0.15),
        "DULY_TIMING_SCHEDULING_LATENESS": seconds(0.04),
        "DULY_TIMING_PROCESS_DEADLINE": seconds(0.8),
        "DULY_TIMING_HEARTBEAT_TIMEOUT": seconds(1),
        "DULY_TIMING_CLAIM_TIMEOUT": seconds(1),
        "DULY_TIMING_KILL_LATENCY": seconds(0.05),
        "DULY_TIMING_CLOCK_STEP": seconds(0.05),
        "PYTHONUNBUFFERED": "1",
    }


def run(*arguments: object, **options: object) -> list[Judged]:
    """Judge a worker, in a loop of its own."""
    return asyncio.run(judge(*arguments, **options))  # type: ignore[arg-type]
