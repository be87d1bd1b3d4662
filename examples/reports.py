"""A task with a file: it reads a table and returns a summary and a file with the rows that are wrong."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass

import duly

app = duly.App(owner="you@example.org", version="1")


@dataclass
class Check:
    """What `report.check` takes."""

    table: duly.Attachment
    column: str


@app.callback("report.check")
def check(payload: Check, ctx: duly.TaskContext) -> dict[str, object]:
    """Find the rows of a table that have no number in a column."""
    wrong = io.StringIO()
    writer = csv.writer(wrong)
    rows = 0
    with payload.table.open() as file:
        for row in csv.DictReader(io.TextIOWrapper(file, "utf-8", newline="")):
            rows += 1
            if not row[payload.column].isdigit():
                writer.writerow(row.values())
    ctx.keep(f"{rows} rows read\n".encode(), name="check.log", role=duly.AttachmentRole.STDERR)
    return {
        "rows": rows,
        "wrong": ctx.attach(wrong.getvalue().encode(), name="wrong.csv", media_type="text/csv"),
    }
