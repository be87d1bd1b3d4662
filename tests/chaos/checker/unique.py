"""C18, of tasks whose unique key is held until their end no two live at a time."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise

from duly_core.tasks.lifecycle import FINAL
from tests.chaos.checker.cases import Case
from tests.chaos.checker.lines import Lines
from tests.chaos.checker.verdict import Violation


def unique(cases: Mapping[str, Case], lines: Lines) -> Iterator[Violation]:
    """Compare the tasks of each key in the order in which they were written.

    Who writes a task of a key has seen the end of the one before, after its commit. So the audit has them in that order.
    """
    of_key: dict[str, list[Case]] = defaultdict(list)
    for case in cases.values():
        if case.acked is not None and case.acked.unique and case.transitions:
            of_key[case.acked.unique].append(case)
    for key, found in sorted(of_key.items()):
        for earlier, later in pairwise(sorted(found, key=lambda case: case.transitions[0].sequence)):
            written = later.transitions[0]
            ended = next((move for move in earlier.transitions if move.after in FINAL), None)
            if ended is None or ended.sequence > written.sequence:
                yield Violation(
                    "C18.twice",
                    later.task_id,
                    f"task {earlier.task_id}, which has the key {key!r}, had ended; it had not",
                    (lines.transition(written), *([lines.transition(ended)] if ended else [])),
                )
