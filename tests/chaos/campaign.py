"""Many runs, several at a time, each a process of its own; a JSON line for each, and a table in the end."""

import argparse
import asyncio
import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from duly_core.process import PARENT_PID
from tests.chaos.postgres import make_template

_BEYOND_TRAFFIC_S = 400
"""A run that takes so much longer than its traffic is killed, and counts as failed."""
_HELD, _BROKEN = 0, 1


def run_campaign(arguments: argparse.Namespace) -> int:
    """Run seeds from `--seed` on; the worst exit code of all."""
    folder = arguments.folder or Path("chaos-campaign")
    folder.mkdir(parents=True, exist_ok=True)
    # Postgres may run as another user: the way to its data must be open.
    folder.chmod(0o711)
    template = folder / "template"
    shutil.rmtree(template, ignore_errors=True)
    make_template(template)
    return asyncio.run(_campaign(arguments, folder))


async def _campaign(arguments: argparse.Namespace, folder: Path) -> int:
    lines = arguments.json or folder / "runs.jsonl"
    seeds = iter(range(arguments.seed, arguments.seed + arguments.runs))
    reports: list[dict[str, Any]] = []
    started = time.monotonic()

    async def work() -> None:
        for seed in seeds:
            report = await _one(arguments, folder, seed)
            reports.append(report)
            with lines.open("a", encoding="utf-8") as file:
                file.write(json.dumps(report) + "\n")
            done = f"{len(reports)}/{arguments.runs}"
            print(f"[{time.monotonic() - started:6.0f} s] {done} {_line(report)}", flush=True)

    await asyncio.gather(*(work() for _ in range(arguments.parallel)))
    print(*table(reports), sep="\n")
    return max((report["exit"] for report in reports), key=_badness)


async def _one(arguments: argparse.Namespace, folder: Path, seed: int) -> dict[str, Any]:
    """One seed in a process of its own; what it reported."""
    own = folder / f"seed-{seed}"
    report = folder / f"seed-{seed}.json"
    report.unlink(missing_ok=True)
    command = [
        sys.executable, "-m", "tests.chaos", f"--seed={seed}", f"--seconds={arguments.seconds}",
        f"--rate={arguments.rate}", f"--queue={arguments.queue}", f"--folder={own}", f"--json={report}",
        f"--template={folder / 'template'}",
        *(f"--only={kind}" for kind in arguments.only), *(["--no-faults"] if arguments.no_faults else []),
        *(["--keep"] if arguments.keep else []),
    ]  # fmt: skip
    log = folder / f"seed-{seed}.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=output, stderr=output, env={**os.environ, PARENT_PID: str(os.getpid())}
        )
        try:
            await asyncio.wait_for(process.wait(), arguments.seconds + _BEYOND_TRAFFIC_S)
        except TimeoutError:
            process.kill()  # its services die with it
            await process.wait()
    try:
        found = json.loads(report.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        said = log.read_text(encoding="utf-8", errors="replace")[-2000:]
        return {"seed": seed, "exit": 2, "error": f"it ended with {process.returncode} and no report: {said}"}
    report.unlink()
    if found["exit"] == _HELD and not arguments.keep:
        log.unlink()
    return dict(found)


def table(reports: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The whole campaign in a few lines."""
    whole = [report for report in reports if "faults" in report]
    verdicts = Counter(report["exit"] for report in reports)
    yield f"runs        {len(reports)}: {verdicts[0]} held, {verdicts[1]} broken, {verdicts[2]} inconclusive"
    for name in ("acked", "executions", "transitions"):
        yield f"{name:<11} {sum(report[name] for report in whole)}"
    faults: Counter[str] = Counter()
    statuses: Counter[str] = Counter()
    for report in whole:
        faults.update(report["faults"])
        for of_kind in report["tasks"].values():
            statuses.update(of_kind)
    yield "tasks       " + ", ".join(f"{status} {count}" for status, count in statuses.most_common())
    yield f"faults      {sum(faults.values())}"
    for kind, count in sorted(faults.items()):
        yield f"  {kind:<24} {count}"
    if whole:
        cpu = sum(report["cpu_s"] for report in whole) / len(whole)
        wall = sum(report["wall_s"] for report in whole) / len(whole)
        yield f"a run       {cpu:.0f} s of CPU, {wall:.0f} s long"
    rules = Counter(line.split(" ", 1)[0].rstrip(":") for report in whole for line in report["violations"])
    yield "violations  " + (", ".join(f"{rule} {count}" for rule, count in rules.most_common()) or "none")
    for report in sorted(reports, key=lambda report: report["seed"]):
        if report["exit"] != _HELD:
            yield f"  {_line(report)}"


def _line(report: dict[str, Any]) -> str:
    verdict = ("held", "BROKEN", "inconclusive")[report["exit"]]
    if "error" in report:
        return f"seed {report['seed']}: {verdict}: {report['error'].splitlines()[0]}"
    faults = sum(report["faults"].values())
    text = (
        f"seed {report['seed']}: {verdict}: {report['acked']} tasks, {faults} faults, "
        f"{len(report['violations']) + len(report['problems'])} violations, last end {report['slowest_s']} s after "
        f"the heal, CPU {report['cpu_s']} s, {report['wall_s']} s"
    )
    return text + (f", {report['folder']}" if "folder" in report else "")


def _badness(code: int) -> int:
    return {0: 0, 2: 1, 1: 2}.get(code, 1)
