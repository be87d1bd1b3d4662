"""What the checker has to say: violations with their evidence, and why a run may prove nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field

EVIDENCE = 6
"""The most lines of evidence that one violation shows."""


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must never be."""

    rule: str
    """Which part of which rule: "C2.times"; the rules are named in `checker/__init__.py`."""
    task_id: str
    """None, if it is not about one task."""
    expected: str
    """What should have been, and what was instead."""
    evidence: tuple[str, ...] = ()
    """What it is seen by, each in one line."""

    def __str__(self) -> str:
        about = f" task {self.task_id}" if self.task_id else ""
        shown = [str(line) for line in self.evidence[:EVIDENCE]]
        if len(self.evidence) > EVIDENCE:
            shown.append(f"... and {len(self.evidence) - EVIDENCE} more")
        return "\n    ".join([f"{self.rule}{about}: {self.expected}", *shown])


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of one run."""

    violations: tuple[Violation, ...]
    inconclusive: tuple[str, ...] = ()
    """Why the run proves nothing, even if nothing was found."""
    notes: tuple[str, ...] = ()
    """What would be a violation, had the run not been exempted; with the reason."""
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether the run proves that the rules held."""
        return not self.violations and not self.inconclusive
