"""C17, what a task uses of attachments stays whole, and nothing else stays."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from duly_core.tasks.lifecycle import Status
from duly_wire.enums import FailureKind
from tests.chaos.checker.cases import Case
from tests.chaos.checker.lines import Lines
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import FileRead, FileSent, History

_WRONG = {
    "orphan": "a blob has an attachment, or goes",
    "unused": "an attachment that no task uses goes after the grace",
    "removing": "what is marked is removed",
    "use": "a use goes with its task",
    "part": "a stored attachment has all of its parts",
    "usage": "the bytes of a namespace are those of its attachments",
}


def files(history: History, cases: Mapping[str, Case], lines: Lines) -> Iterator[Violation]:
    """C17 of all tasks, and of the store."""
    for read in history.file_reads:
        yield from _read(history, cases.get(read.task_id), read, lines)
    sent = defaultdict(list)
    for each in history.files_sent:
        sent[each.task_id, each.fence].append(each)
    for case in cases.values():
        yield from _refused(history, case, sent, lines)
    for use in history.file_uses:
        if use.problem:
            yield Violation(
                "C17.lost",
                use.task_id,
                f"what a task uses can be fetched whole; {use.name!r} cannot",
                (use.problem,),
            )
    by_kind = defaultdict(list)
    for left in history.files_left:
        by_kind[left.what].append(left.name)
    for what, names in sorted(by_kind.items()):
        yield Violation(
            f"C17.{what}", "", f"when all is over, {_WRONG[what]}; {len(names)} did not", tuple(names)
        )


def _read(history: History, case: Case | None, read: FileRead, lines: Lines) -> Iterator[Violation]:
    if read.got == read.wanted:
        return
    at = lines.at(read.at_ns)
    if read.got:
        yield Violation(
            "C17.content",
            read.task_id,
            "a callback that reads an attachment gets its content; it got other bytes",
            (f"read at {at}: {read.wanted} is wanted, {read.got} was found",),
        )
        return
    claims = case.claims if case is not None else ()
    claim = next((each for each in claims if each.fence == read.fence), None)
    if claim is None:  # C3 says so
        return
    slack = history.limits.clock_slack_ns
    if claim.ended is not None and claim.ended.at_ns <= read.at_ns + slack:
        return  # whoever has lost its claim may read no more
    yield Violation(
        "C17.missing",
        read.task_id,
        "who holds a claim can read what its task uses, and what those before it returned; it was refused",
        (f"at {at}: {read.refused}", lines.transition(claim.begun)),
    )


def _refused(
    history: History, case: Case, sent: Mapping[tuple[str, int], list[FileSent]], lines: Lines
) -> Iterator[Violation]:
    """What a run returns is there when its end is written, unless that came after the grace."""
    row, claim = case.final, case.ending_claim
    if row is None or row.status != Status.FATAL_FAILURE or row.failure_kind != FailureKind.BAD_RESULT:
        return
    uploads = sent.get((case.task_id, claim.fence), []) if claim is not None else []
    if case.end is None or not uploads:
        return  # then C1 says that it may not end so
    began_ns = min(each.at_ns for each in uploads)
    moved = any(
        after_ns >= began_ns and before_ns <= case.end.at_ns for before_ns, after_ns in history.clock_moves
    )
    took_ns = case.end.at_ns - began_ns
    if took_ns < history.limits.file_grace_ns and not moved:
        yield Violation(
            "C17.result",
            case.task_id,
            f"what was uploaded stays for the grace; after {took_ns / 1e9:.3f} s its result was refused",
            (lines.transition(case.end), lines.final(row)),
        )
