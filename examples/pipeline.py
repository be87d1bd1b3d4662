"""A chain of tasks that go on where they stopped: an import in steps, then a report on it.

duly up examples.pipeline:app
duly schedule pipeline.import '{"source": "orders", "rows": 1000}'
duly list
"""

from dataclasses import dataclass
from datetime import timedelta

import duly

app = duly.App(owner="you@example.org", version="1")

STEP = 100
"""Rows between two checkpoints."""


@dataclass
class Import:
    """What `pipeline.import` takes."""

    source: str
    rows: int
    # To see it go on: the first attempt fails before this row. 0: it does not.
    fails_at: int = 0


@dataclass
class Report:
    """What `pipeline.report` takes."""

    source: str
    rows: int


@app.callback("pipeline.import", backoff=duly.Backoff(initial=timedelta(milliseconds=1)))
def import_rows(asked: Import, ctx: duly.TaskContext) -> dict[str, object]:
    """Import what the attempts before have not, and have it reported on."""
    done = before = ctx.checkpointed or 0
    while done < asked.rows:
        if ctx.attempt == 1 and asked.fails_at and done >= asked.fails_at:
            raise duly.RetriableFailure(f"the source went away after {done} rows")
        done += min(STEP, asked.rows - done)  # here the rows would be written
        ctx.checkpoint(done)
    # written with this task's success, or not at all: no import is without its report, and none has two
    report = ctx.schedule(write_report, Report(asked.source, done))
    return {"imported": done - before, "report": str(report)}


@app.callback("pipeline.report")
def write_report(asked: Report) -> str:
    """Return the report."""
    return f"{asked.rows} rows of {asked.source}"
