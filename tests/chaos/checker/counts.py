"""C5, no run without a reason; C8, attempts are exact; C3, what runs has a claim."""

from collections import defaultdict
from collections.abc import Iterator

from duly_core.tasks.lifecycle import FINAL, Status
from duly_wire.enums import FailureKind
from tests.chaos.checker.cases import Case, Claim
from tests.chaos.checker.lines import Lines
from tests.chaos.checker.reach import endangers
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import SUCCEEDED, Execution, History


class Reasons:
    """What may have ended an execution before its time: a fault, or another task that killed the process."""

    def __init__(self, history: History, cases: dict[str, Case]) -> None:
        limits = history.limits
        lease = max(limits.claim_timeout_ns, limits.heartbeat_timeout_ns)
        self._reach_ns = limits.explained_ns + lease
        self._faults = [fault for fault in history.faults if endangers(fault)]
        self._killers: dict[str, set[str]] = defaultdict(set)
        for case in cases.values():
            for claim in case.claims:
                for execution in claim.executions:
                    if _ends_its_process(case, claim, execution):
                        self._killers[execution.process].add(case.task_id)

    def explain(self, case: Case, claim: Claim) -> bool:
        """Whether there is one for the end of this claim."""
        if claim.ended is None or (case.acked is not None and case.acked.crashes_itself):
            return True
        hosts = {execution.host for execution in claim.executions}
        return any(
            fault.from_ns <= claim.ended.at_ns
            and fault.until_ns + self._reach_ns >= claim.begun.at_ns
            and any(endangers(fault, host) for host in hosts)
            for fault in self._faults
        ) or any(
            self._killers.get(execution.process, set()) - {case.task_id} for execution in claim.executions
        )


def _ends_its_process(case: Case, claim: Claim, execution: Execution) -> bool:
    """It crashes by itself, keeps its process from answering, or was killed for running too long."""
    if case.acked is not None and case.acked.breaks_process:
        return True
    if execution.ended_ns is not None:
        return False
    if case.acked is not None and case.acked.crashes_itself:
        return True
    return claim.ended is not None and claim.ended.failures > claim.ended.failures_before


def counts(history: History, case: Case, reasons: Reasons, lines: Lines) -> Iterator[Violation]:
    """C5, C8, and the claims of what ran, of one task."""
    yield from _claims(history, case, lines)
    unexplained = list(_unexplained(case, reasons, lines))
    yield from unexplained
    if not history.faults and not unexplained:
        yield from _fault_free(case, lines)
    yield from _final(case, lines)
    yield from _quarantine(case, lines)


def _claims(history: History, case: Case, lines: Lines) -> Iterator[Violation]:
    claims = {claim.fence: claim for claim in case.claims}
    for execution in case.executions:
        claim = claims.get(execution.fence)
        shown = (lines.execution(execution), *(lines.transition(each.begun) for each in case.claims))
        if claim is None:
            if case.transitions:  # else C1 has said that it is not stored
                yield Violation("C3.unclaimed", case.task_id, "what runs has a claim of its fence", shown)
        elif execution.started_ns < claim.begun.at_ns - history.limits.clock_slack_ns:
            early = (claim.begun.at_ns - execution.started_ns) / 1e9
            yield Violation(
                "C3.unclaimed", case.task_id, f"it runs after its claim; it began {early:.6f} s before", shown
            )
        elif execution.attempt != claim.attempt:
            yield Violation(
                "C8.attempt",
                case.task_id,
                f"a callback is told attempt failures + crashes + 1 = {claim.attempt}; it was told"
                f" {execution.attempt}",
                shown,
            )
    for claim in case.claims:
        if len(claim.executions) > 1:
            yield Violation(
                "C5.same-claim",
                case.task_id,
                f"a claim runs once; {len(claim.executions)} executions have fence {claim.fence}",
                tuple(map(lines.execution, claim.executions)),
            )


def _unexplained(case: Case, reasons: Reasons, lines: Lines) -> Iterator[Violation]:
    """C5: what ran and runs again had a failure of its own, or a fault."""
    for claim in case.claims:
        if not claim.executions or claim.ended is None or reasons.explain(case, claim):
            continue
        ended = claim.ended
        crashed = ended.crashes > ended.crashes_before
        handed_back = ended.after == Status.NEW and claim.executions[0].outcome != "snoozed"
        if crashed or handed_back:
            what = "crashed" if crashed else "was handed back"
            yield Violation(
                "C5.unexplained",
                case.task_id,
                f"an execution {what}, and neither a fault nor another task in its process explains that",
                (
                    lines.execution(claim.executions[0]),
                    lines.transition(claim.begun),
                    lines.transition(ended),
                ),
            )


def _fault_free(case: Case, lines: Lines) -> Iterator[Violation]:
    acked = case.acked
    if acked is None or not acked.plain or acked.cancel_asked or acked.expires_ns:
        return
    if len(case.executions) > 1:  # none at all is C1's
        yield Violation(
            "C5.fault-free",
            case.task_id,
            f"without faults a {acked.kind} task runs once; it ran {len(case.executions)} times",
            tuple(map(lines.execution, case.executions)),
        )


def _final(case: Case, lines: Lines) -> Iterator[Violation]:
    """C8: the row says what the transitions add up to."""
    row = case.final
    if row is None:
        return
    if not case.transitions:
        yield Violation(
            "C4.chain", case.task_id, "every write is in the audit; nothing is", (lines.final(row),)
        )
        return
    last = case.transitions[-1]
    shown = (lines.transition(last), lines.final(row))
    status = row.status or row.assoc_status
    if status != last.after or (row.status and row.assoc_status):
        yield Violation(
            "C4.row", case.task_id, f"the row stands where the last write left it ({last.after})", shown
        )
    written = last.fence, last.failures, last.crashes
    if (row.fence, row.failures, row.crashes) != written:
        yield Violation(
            "C8.row", case.task_id, f"fence, failures and crashes are {written}, as written last", shown
        )


def _quarantine(case: Case, lines: Lines) -> Iterator[Violation]:
    acked, row = case.acked, case.final
    if acked is None or row is None or row.status not in FINAL:
        return
    crashed = row.status == Status.FATAL_FAILURE and row.failure_kind == FailureKind.QUARANTINED
    shown = (lines.final(row), *map(lines.execution, case.executions))
    if crashed and not acked.crashes_itself:
        yield Violation(
            "C8.innocent",
            case.task_id,
            f"a {acked.kind} task never crashes by itself; it was quarantined",
            shown,
        )
    elif crashed and row.crashes != acked.max_crashes:
        yield Violation(
            "C8.quarantine",
            case.task_id,
            f"quarantine comes with crash {acked.max_crashes}; it had {row.crashes}",
            shown,
        )
    elif acked.poison and not crashed:
        cancelled = acked.cancel_asked and row.status == Status.CANCELLED
        expired = acked.expires_ns and row.failure_kind == FailureKind.EXPIRED
        succeeded = any(execution.outcome == SUCCEEDED for execution in case.executions)
        if (not cancelled and not expired) or succeeded:
            yield Violation(
                "C8.poison",
                case.task_id,
                f"a poison task ends in quarantine; it ended as {row.status}",
                shown,
            )
