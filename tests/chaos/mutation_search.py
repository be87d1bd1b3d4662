"""Runs seeds without a guard until a run finds that it is gone: how long that takes says what the checks are worth."""

import argparse
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.chaos.campaign import Campaign
from tests.chaos.mutations import MUTATIONS
from tests.chaos.shared import Shared, sharing
from tests.chaos.single import EXIT_BROKEN, plan_of

LONGEST = timedelta(minutes=10)
_RULE = re.compile(r"C\d+\.[\w-]+")


@dataclass(frozen=True, slots=True)
class Search:
    """How the search for one mutation went."""

    name: str
    rules: tuple[str, ...]
    """That found it, the most frequent first; none: nothing did."""
    runs: int
    seconds: float


class MutationSearch:
    """Searches for each mutation in turn."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._names = [arguments.mutation] if arguments.mutation else list(MUTATIONS)

    def run(self) -> int:
        """Print a line for each; 0: all were found."""
        campaign = Campaign(self._arguments)
        campaign.open_folder()
        found = []
        with sharing(campaign.folder, sqs=True) as shared:
            for name in self._names:
                found.append(self._search(name, shared, campaign.folder / name))
                print(describe(found[-1]), flush=True)
        return 0 if all(each.rules for each in found) else 1

    def _search(self, name: str, shared: Shared, folder: Path) -> Search:
        started = time.monotonic()
        seed, runs = self._arguments.seed, 0
        while time.monotonic() - started < LONGEST.total_seconds():
            seeds = range(seed + runs, seed + runs + self._arguments.parallel)
            changed = {"mutation": name, "runs": len(seeds), "folder": folder}
            own = argparse.Namespace(**vars(self._arguments) | changed)
            campaign = Campaign(own)
            campaign.open_folder()
            campaign.run_all([plan_of(each, own) for each in seeds], shared)
            runs += len(seeds)
            rules = rules_of(campaign.reports)
            if rules:
                return Search(name, rules, runs, time.monotonic() - started)
        return Search(name, (), runs, time.monotonic() - started)


def rules_of(reports: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Return the rules that these runs say are broken, the most frequent first."""
    counts: dict[str, int] = {}
    for report in reports:
        if report["exit"] == EXIT_BROKEN:
            for line in (*report["violations"], *report["problems"]):
                found = _RULE.match(line)
                rule = found[0] if found else "a client's answer"
                counts[rule] = counts.get(rule, 0) + 1
    return tuple(sorted(counts, key=lambda rule: -counts[rule]))


def describe(search: Search) -> str:
    """Return it in a line."""
    after = f"{search.runs} runs, {search.seconds:.0f} s"
    if not search.rules:
        return f"{search.name}: NOT FOUND in {after}"
    return f"{search.name}: found by {', '.join(search.rules[:4])} in {after}"
