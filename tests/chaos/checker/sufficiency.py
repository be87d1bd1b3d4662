"""Whether a run was hard enough, and long enough, to prove anything."""

from collections import Counter
from collections.abc import Iterator

from tests.chaos.checker.cases import Case
from tests.chaos.checker.losses import bound_ns
from tests.chaos.history import History


def inconclusive(history: History, cases: dict[str, Case]) -> Iterator[str]:
    """Why it proves nothing, each reason in words."""
    limits = history.limits
    if len(history.acked) < limits.least_tasks:
        yield f"{len(history.acked)} tasks were acknowledged; at least {limits.least_tasks} make a run"
    injected = Counter(fault.kind for fault in history.faults)
    for kind, least in sorted(limits.least_faults.items()):
        number = injected[kind] if kind else injected.total()
        if number < least:
            yield f"{number} faults{f' of kind {kind}' if kind else ''} were injected; at least {least} make a run"
    if limits.starved_ns > limits.most_starved_ns:
        yield f"the machine had no time for the system for {limits.starved_ns / 1e9:.0f} s after the heal"
    for what, number, least in (
        ("graphs were finished", sum(row.finished for row in history.graphs), limits.least_graphs),
        ("ticks fired", len(history.ticks), limits.least_ticks),
        ("changes were answered", sum(bool(each.acked_ns) for each in history.changes), limits.least_changes),
        (
            "attachments were read",
            sum(bool(each.got) for each in history.file_reads),
            limits.least_files,
        ),
        ("samples were taken", len(history.samples), limits.least_samples),
        ("callback processes were seen alive", len(history.seen), limits.least_seen),
    ):
        if number < least:
            yield f"{number} {what}; at least {least} make a run"
    open_ended = [
        case.task_id
        for case in cases.values()
        if case.final is not None and not case.final.status and bound_ns(history, case) > history.finished_ns
    ]
    if open_ended:
        yield f"the run ended before {len(open_ended)} tasks had to be final, the first: {min(open_ended)}"
