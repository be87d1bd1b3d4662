"""Judges a history again that a run has kept: `python -m tests.chaos.checker FILE`."""

import sys
from pathlib import Path

from tests.chaos.checker import Verdict, check
from tests.chaos.saved_history import load


def main() -> int:
    """0: it holds; 1: it does not; 2: it proves nothing."""
    if len(sys.argv) != 2:
        print("usage: python -m tests.chaos.checker FILE", file=sys.stderr)
        return 64
    verdict: Verdict = check(load(Path(sys.argv[1])))
    for violation in verdict.violations:
        print(violation)
    for line in (*verdict.notes, *verdict.inconclusive):
        print(line)
    print(*(f"{name} {number:g}" for name, number in verdict.figures.items()), sep=", ")
    return 1 if verdict.violations else 2 if verdict.inconclusive else 0


if __name__ == "__main__":
    sys.exit(main())
