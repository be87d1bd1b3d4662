"""Counts what became of the tasks of a soak: the notes of callbacks against the numbers that were scheduled."""

import math
from enum import IntEnum
from pathlib import Path

from benchmarks.percentiles import percentile
from benchmarks.soak.app import NOTE


class Fate(IntEnum):
    """What is known of a number."""

    UNKNOWN = 0
    """No call for it was answered."""
    EXPECTED = 1
    """It was scheduled, so it must run."""
    CANCELLED = 2
    STARTED = 3


class Tally:
    """One byte for each task."""

    def __init__(self, notes: Path) -> None:
        self._notes = notes
        self._read = 0
        self._fates = bytearray()
        self.started_again = 0
        """Successful starts beyond the first one of a task: a repeat after a lost answer."""
        self.started_though_cancelled = 0
        self._late: list[float] = []

    def expect(self, number: int) -> None:
        """Its schedule was acknowledged. It may have started already."""
        if self._fate(number) is Fate.UNKNOWN:
            self._fates[number] = Fate.EXPECTED

    def cancelled(self, number: int) -> None:
        """The cancel was acknowledged before the task started."""
        if self._fate(number) is Fate.STARTED:
            self.started_though_cancelled += 1
        else:
            self._fates[number] = Fate.CANCELLED

    def read(self) -> None:
        """Take in the notes that were added."""
        if not self._notes.exists():
            return
        with self._notes.open("rb") as file:
            file.seek(self._read)
            added = file.read()
        whole = len(added) - len(added) % NOTE.size
        self._read += whole
        for number, lateness in NOTE.iter_unpack(added[:whole]):
            self._start(number, lateness)

    def take_lateness(self) -> dict[str, float]:
        """p50 and p99 in milliseconds of the starts since the last call; empty: there were none."""
        late, self._late = sorted(self._late), []
        if not late:
            return {}
        return {f"p{part}": percentile(late, part / 100) * 1000 for part in (50, 99)}

    def count(self, fate: Fate) -> int:
        """How many tasks have this fate."""
        return self._fates.count(fate)

    def missing(self, most: int = 10) -> list[int]:
        """Numbers of the first tasks that should have run, and did not."""
        found: list[int] = []
        at = self._fates.find(Fate.EXPECTED)
        while at >= 0 and len(found) < most:
            found.append(at)
            at = self._fates.find(Fate.EXPECTED, at + 1)
        return found

    def _start(self, number: int, lateness: float) -> None:
        fate = self._fate(number)
        self.started_again += fate is Fate.STARTED
        self.started_though_cancelled += fate is Fate.CANCELLED
        self._fates[number] = Fate.STARTED
        if not math.isnan(lateness):
            self._late.append(max(lateness, 0.0))

    def _fate(self, number: int) -> Fate:
        if number >= len(self._fates):
            self._fates.extend(bytes(number + 1 - len(self._fates)))
        return Fate(self._fates[number])
