"""Many runs, several at a time, forked from a process that has imported everything; a JSON line for each, and a table."""

import argparse
import gc
import json
import os
import resource
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duly_core.process.parent import PARENT_PID, die_with_parent
from tests.chaos.plan import Plan
from tests.chaos.shared import Shared, sharing
from tests.chaos.single import plan_of, run_single

_BEYOND_TRAFFIC_S = 400
"""A run that takes so much longer than its traffic is killed, and counts as failed."""
_HELD = 0


@dataclass(slots=True)
class _Running:
    """A run under way."""

    seed: int
    pid: int
    descriptor: int
    until: float
    report: Path
    log: Path


class Campaign:
    """Runs seeds from `--seed` on."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._folder: Path = arguments.folder or Path("chaos-campaign")
        self._lines: Path = arguments.json or self._folder / "runs.jsonl"
        self._reports: list[dict[str, Any]] = []
        self._started = time.monotonic()

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def reports(self) -> Sequence[dict[str, Any]]:
        """What the runs reported that are over."""
        return self._reports

    def open_folder(self) -> None:
        """Make it. Postgres may run as another user: the way to its data must be open."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o711)

    def run(self) -> int:
        """All of them; the worst exit code of all."""
        arguments = self._arguments
        self.open_folder()
        seeds = range(arguments.seed, arguments.seed + arguments.runs)
        plans = [plan_of(seed, arguments) for seed in seeds]
        with sharing(self._folder, sqs=any(plan.queue == "sqs" for plan in plans)) as shared:
            self.run_all(plans, shared)
        cpu = _cpu_seconds()
        print(*table(self._reports), sep="\n")
        print(
            f"in all      {cpu / len(plans):.1f} s of CPU a run, with Postgres, the SQS look-alike and the start"
        )
        return max((report["exit"] for report in self._reports), key=_badness)

    def run_all(self, plans: Sequence[Plan], shared: Shared) -> None:
        """Run these plans, so many at a time as are wanted."""
        gc.collect()
        gc.freeze()  # so that no run copies these pages because its collector looks at them
        waiting = list(reversed(plans))
        running: list[_Running] = []
        while waiting or running:
            while waiting and len(running) < self._arguments.parallel:
                running.append(self._fork(waiting.pop(), shared))
            poll = select.poll()
            for each in running:
                poll.register(each.descriptor, select.POLLIN)
            ended = {descriptor for descriptor, _ in poll.poll(1000)}
            for each in list(running):
                if each.descriptor in ended:
                    running.remove(each)
                    self._note(each)
                elif time.monotonic() > each.until:
                    os.kill(each.pid, signal.SIGKILL)  # its fork server ends whatever it started

    def _fork(self, plan: Plan, shared: Shared) -> _Running:
        own = self._folder / f"seed-{plan.seed}"
        report, log = own.with_suffix(".json"), own.with_suffix(".log")
        report.unlink(missing_ok=True)
        parent = os.getpid()
        pid = os.fork()
        if not pid:
            code = 2
            try:
                os.environ[PARENT_PID] = str(parent)
                die_with_parent()
                output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
                os.dup2(output, 1)
                os.dup2(output, 2)
                arguments = argparse.Namespace(**vars(self._arguments) | {"folder": own, "json": report})
                code = run_single(plan, arguments, shared)
                sys.stdout.flush()
            finally:
                os._exit(code)
        until = time.monotonic() + plan.seconds + _BEYOND_TRAFFIC_S
        return _Running(plan.seed, pid, os.pidfd_open(pid), until, report, log)

    def _note(self, ended: _Running) -> None:
        """Reap it, and keep what it reported."""
        os.close(ended.descriptor)
        _, status, usage = os.wait4(ended.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        try:
            found = json.loads(ended.report.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            said = ended.log.read_text(encoding="utf-8", errors="replace")[-2000:]
            found = {"seed": ended.seed, "exit": 2, "error": f"it ended with {code} and no report: {said}"}
        ended.report.unlink(missing_ok=True)
        if "cpu_s" in found:
            found["cpu_s"] = round(usage.ru_utime + usage.ru_stime, 1)
        if found["exit"] == _HELD and not self._arguments.keep:
            ended.log.unlink()
        self._reports.append(found)
        with self._lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")
        done = f"{len(self._reports)}/{self._arguments.runs}"
        print(f"[{time.monotonic() - self._started:6.0f} s] {done} {_line(found)}", flush=True)


def table(reports: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The whole campaign in a few lines."""
    whole = [report for report in reports if "faults" in report]
    verdicts = Counter(report["exit"] for report in reports)
    queues = Counter(report["plan"]["queue"] for report in whole)
    yield f"runs        {len(reports)}: {verdicts[0]} held, {verdicts[1]} broken, {verdicts[2]} inconclusive"
    yield "queues      " + ", ".join(f"{queue} {count}" for queue, count in queues.items())
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
        yield f"a run       {cpu:.1f} s of CPU without the shared Postgres, {wall:.0f} s long"
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
        f"seed {report['seed']}: {verdict}: {report['plan']['queue']}, {report['acked']} tasks, {faults} faults, "
        f"{len(report['violations']) + len(report['problems'])} violations, last end {report['slowest_s']} s after "
        f"the heal, CPU {report['cpu_s']} s, {report['wall_s']} s"
    )
    return text + (f", {report['folder']}" if "folder" in report else "")


def _badness(code: int) -> int:
    return {0: 0, 2: 1, 1: 2}.get(code, 1)


def _cpu_seconds() -> float:
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total
