"""What the demo's callback processes run: `fileindex`, written down in the execution log, and failing now and then."""

import os
from datetime import timedelta
from pathlib import Path

import duly
import fileindex
from duly_local.demo.journal import FOLDER_VARIABLE, Journal
from duly_local.demo.workload import LAMBDA, fails_first

app = duly.App(owner="duly demo", version="1")

_journal = Journal(Path(os.environ[FOLDER_VARIABLE]))


@app.callback(LAMBDA, backoff=duly.Backoff(initial=timedelta(milliseconds=200)))
def index(file: fileindex.File, ctx: duly.TaskContext) -> dict[str, object]:
    """Index the file, unless this is a first attempt that is to fail."""
    with _journal.execution(ctx):
        if ctx.attempt == 1 and fails_first(file.path):
            raise duly.RetriableFailure("a first attempt that the demo lets fail")
        return fileindex.index(file)
