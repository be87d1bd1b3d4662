"""Recovery times: from the kill -9 of a part to the next start of the tasks that it ran, or to tasks flowing again."""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import duly
from benchmarks.recovery.bench import Bench, Profile, Start, children_of, kill, parent_of, running

APP = "benchmarks.recovery.app:app"
_JOURNALS = b"DULY_EXECUTOR_JOURNAL_FOLDER="
_TASKS = 8
_SETTLED = 30.0
_LONGEST = {"embedded": 60.0, "production": 150.0}

Figures = dict[str, list[float]]


async def measure(profile: Profile, parts: list[str], rounds: int) -> Figures:
    """Kill each of the parts in turn, so many times, on one stack with two hosts."""
    figures: Figures = {}
    async with running(apps=(APP, APP), profile=profile, executors=1, processes=2, slots=4) as bench:
        for number in range(rounds):
            for part in parts:
                name = f"kill -9 {part} ({profile})"
                seconds = await _measures(part)(bench, f"{part}-{number}", _LONGEST[profile])
                figures.setdefault(name, []).append(seconds)
                print(f"  {name}: {seconds:.3f} s", flush=True)
                await bench.ready()
    return figures


def _measures(part: str) -> Callable[[Bench, str, float], Awaitable[float]]:
    return {
        "callback process": _callback_process,
        "executor": _executor,
        "worker": _worker,
        "host": _host,
        "frontend": _service("frontend"),
        "hsc": _service("hsc"),
        "store consumer": _service("store-consumer"),
        "postgres": _postgres,
    }[part]


PARTS = ("callback process", "executor", "worker", "host", "frontend", "hsc", "store consumer", "postgres")


# ---- what runs tasks ---------------------------------------------------------------------------------------


async def _callback_process(bench: Bench, name: str, longest: float) -> float:
    return await _kill_holders(bench, name, longest, lambda start: [start.pid])


async def _executor(bench: Bench, name: str, longest: float) -> float:
    return await _kill_holders(bench, name, longest, lambda start: [parent_of(start.pid)])


async def _worker(bench: Bench, name: str, longest: float) -> float:
    return await _kill_holders(bench, name, longest, _everything)


async def _host(bench: Bench, name: str, longest: float) -> float:
    """As if the machine was lost: nobody finds the claim journals."""

    def everything(start: Start) -> list[int]:
        for journal in _journals_of(parent_of(start.pid)):
            journal.unlink()
        return _everything(start)

    return await _kill_holders(bench, name, longest, everything)


def _everything(start: Start) -> list[int]:
    controller = parent_of(parent_of(start.pid))
    return [controller, *children_of(controller)]


def _journals_of(executor: int) -> list[Path]:
    """Found where its Controller told it to journal."""
    environment = Path(f"/proc/{executor}/environ").read_bytes().split(b"\0")
    (folder,) = [each.partition(b"=")[2].decode() for each in environment if each.startswith(_JOURNALS)]
    return list(Path(folder).glob(f"*_{executor}_*.claims"))


async def _kill_holders(
    bench: Bench, name: str, longest: float, victims_of: Callable[[Start], list[int]]
) -> float:
    """Kill what runs one of several tasks; until the last of those that died with it has started again."""
    go = bench.until_file(name)
    scheduled = await bench.client.schedule_many(
        duly.NewTask("recovery.hold", {"until": str(go)}) for _ in range(_TASKS)
    )
    tasks = [task.task_id for task in scheduled]
    first = await bench.started(tasks, 0, _SETTLED)
    victims = victims_of(next(iter(first.values())))
    dying = set(victims) | {child for pid in victims for child in children_of(pid)}
    affected = [task for task, start in first.items() if start.pid in dying]
    killed_at = kill(victims)
    again = await bench.started(affected, killed_at, longest)
    go.touch()
    ended = await bench.client.wait_many(scheduled)
    _check(ended, dict.fromkeys(affected, 1))
    return max(start.at for start in again.values()) - killed_at


def _check(ended: list[duly.Task], crashes: dict[str, int]) -> None:
    """Those that died crashed once, no other did, and all succeeded."""
    wrong = [
        task
        for task in ended
        if task.status is not duly.TaskStatus.SUCCESS or task.crashes != crashes.get(task.task_id, 0)
    ]
    if wrong:
        message = f"{len(wrong)} tasks did not end as they should; the first: {wrong[0]}"
        raise RuntimeError(message)


# ---- what tasks flow through ---------------------------------------------------------------------------------


def _service(child: str) -> Callable[[Bench, str, float], Awaitable[float]]:
    async def measured(bench: Bench, _name: str, longest: float) -> float:
        return await _until_tasks_flow(bench, bench.pid_of(child), longest)

    return measured


async def _postgres(bench: Bench, _name: str, longest: float) -> float:
    file: Path = bench.folder / "data" / "postgres" / "postmaster.pid"
    return await _until_tasks_flow(bench, int(file.read_text(encoding="utf-8").split("\n", 1)[0]), longest)


async def _until_tasks_flow(bench: Bench, victim: int, longest: float) -> float:
    """A task is scheduled as soon as that is possible again; until it starts."""
    killed_at = kill([victim])
    task = await schedule_when_possible(bench, longest)
    again = await bench.started([task.task_id], killed_at, longest)
    return again[task.task_id].at - killed_at


async def schedule_when_possible(bench: Bench, longest: float) -> duly.ScheduledTask:
    """Schedule a task, whatever it takes; the SDK's own tries end after some seconds."""
    deadline = time.monotonic() + longest
    while True:
        try:
            return await bench.client.schedule("recovery.start")
        except duly.DulyError:
            if time.monotonic() > deadline:
                raise
