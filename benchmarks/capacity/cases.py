"""The loads that the model of capacity is fitted to, and those that it is held against."""

from dataclasses import dataclass
from typing import Any, Literal

STORE: Literal["store"] = "store"
SQS: Literal["sqs"] = "sqs"


@dataclass(frozen=True, slots=True)
class Case:
    """One load. Its tasks do nothing: what is measured is Duly."""

    name: str
    rate: float
    """Tasks a second."""
    each: int = 1
    """Tasks of a call."""
    payload: int = 100
    later: bool = False
    sessions: int = 0
    resources: bool = False
    queue: Literal["store", "sqs"] = STORE
    runs: bool = True
    """Whether its tasks run; else they are due on another day."""
    held_out: bool = False
    """The fit does not see it."""

    @property
    def call(self) -> dict[str, Any]:
        """What the submitter is told beside tasks and rate."""
        return {
            "each": self.each,
            "payload": self.payload,
            "later": self.later,
            "runs": self.runs,
            "sessions": self.sessions,
            "resources": self.resources,
        }


CASES = (
    Case("50 a second", 50),
    Case("150 a second", 150),
    Case("300 a second", 300),
    Case("800 a second", 800),
    Case("1,500 a second", 1_500),
    Case("1,000 a second in calls of 10", 1_000, each=10),
    Case("3,000 a second in calls of 100", 3_000, each=100),
    Case("200 a second in calls of 20", 200, each=20),
    Case("300 a second, 4 KiB", 300, payload=4_096),
    Case("300 a second, 32 KiB", 300, payload=32_768),
    Case("300 a second, scheduled ahead", 300, later=True),
    Case("1,000 a second in calls of 10, scheduled ahead", 1_000, each=10, later=True),
    Case("100 a second, due tomorrow", 100, runs=False),
    Case("500 a second, due tomorrow", 500, runs=False),
    Case("1,000 a second in calls of 20, due tomorrow", 1_000, each=20, runs=False),
    Case("300 a second, in sessions of 10", 300, sessions=10),
    Case("300 a second, units of a resource", 300, resources=True),
    Case("500 a second", 500, held_out=True),
    Case("1,500 a second in calls of 20", 1_500, each=20, held_out=True),
    Case("200 a second, 16 KiB", 200, payload=16_384, held_out=True),
    Case("600 a second in calls of 5, scheduled ahead", 600, each=5, later=True, held_out=True),
    Case("50 a second over SQS", 50, queue=SQS),
    Case("150 a second over SQS", 150, queue=SQS),
    Case("200 a second over SQS in calls of 10", 200, each=10, queue=SQS),
    Case("100 a second over SQS", 100, queue=SQS, held_out=True),
)

BYTES = (100, 512, 1_024, 1_800, 4_096, 16_384)
"""Of the payloads of tasks that are kept after their end: how large the store is with them, and its WAL."""
HELD = 200
"""Tasks that run for 10 s at a time: what their heartbeats cost."""
