"""What a run has to say for itself: to people, and as JSON."""

from collections import Counter
from typing import Any

from tests.chaos.checker import Verdict
from tests.chaos.runner import Outcome

_SHOWN = 25
"""Violations on the terminal; the report's file has all."""


def as_json(outcome: Outcome, verdict: Verdict) -> dict[str, Any]:
    """Figures, faults by kind, tasks by outcome, violations."""
    history = outcome.history
    final = {row.task_id: row.status or row.assoc_status for row in history.final}
    return {
        "seed": history.seed,
        "plan": outcome.plan.as_json(),
        "sent": outcome.sent,
        "acked": len(history.acked),
        "tasks": _by_kind((task.kind, final.get(task.task_id, "missing")) for task in history.acked),
        "executions": len(history.executions),
        "transitions": len(history.transitions),
        "outcomes": dict(Counter(execution.outcome or "cut off" for execution in history.executions)),
        "faults": dict(Counter(fault.kind for fault in history.faults)),
        "missed": outcome.missed,
        "replayed": outcome.replayed,
        "intrusions": outcome.intrusions,
        "violations": [str(violation) for violation in verdict.violations],
        "inconclusive": [str(reason) for reason in verdict.inconclusive],
        "notes": list(verdict.notes),
        "figures": dict(verdict.figures),
        "problems": outcome.problems,
        "cpu_s": round(outcome.cpu_s, 1),
        "wall_s": round(outcome.wall_s, 1),
        "phases": outcome.phases,
        "slowest_s": _slowest(outcome),
    }


def show(outcome: Outcome, figures: dict[str, Any]) -> None:
    """Print it."""
    tasks = figures["tasks"]
    print(f"  topology   {outcome.plan.topology}")
    print(f"  faults     {sum(figures['faults'].values())}: " + _counted(figures["faults"]))
    for line in figures["missed"]:
        print(f"  missed     {line}")
    print(f"  tasks      {figures['acked']} acknowledged of {figures['sent']} sent")
    for kind in sorted(tasks):
        print(f"    {kind:<16} {_counted(tasks[kind])}")
    print(f"  executions {figures['executions']}: " + _counted(figures["outcomes"]))
    print(f"  replayed   {_counted(figures['replayed'])}, under old tokens of tasks that another held")
    if figures["intrusions"]:
        print(f"  intrusions {_counted(figures['intrusions'])}, all refused or violations")
    print(f"  phases     {_counted(figures['phases'])}; CPU {figures['cpu_s']} s of {figures['wall_s']} s")
    print(f"  figures    {_counted(figures['figures'])}")
    wrong = [*figures["violations"], *figures["problems"]]
    for line in wrong[:_SHOWN]:
        print(f"  VIOLATION  {line}")
    if len(wrong) > _SHOWN:
        print(f"  ... and {len(wrong) - _SHOWN} more")
    for line in figures["notes"]:
        print(f"  note       {line}")
    for line in figures["inconclusive"]:
        print(f"  INCONCLUSIVE {line}")
    print(f"chaos: seed {figures['seed']}: " + ("held", "BROKEN", "inconclusive")[figures["exit"]])
    if "folder" in figures:
        print(f"  files:     {figures['folder']}\n  to replay: {figures['replay']}")


def _slowest(outcome: Outcome) -> float:
    """How long after the last heal the last task became final."""
    ends = [
        each.at_ns
        for each in outcome.history.transitions
        if each.after in ("success", "fatal_failure", "cancelled")
    ]
    return round((max(ends, default=0) - outcome.history.healed_ns) / 1e9, 2)


def _by_kind(pairs: Any) -> dict[str, dict[str, int]]:
    counted: dict[str, Counter[str]] = {}
    for kind, status in pairs:
        counted.setdefault(kind, Counter())[status] += 1
    return {kind: dict(counter) for kind, counter in counted.items()}


def _counted(counts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"
