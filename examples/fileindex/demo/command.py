"""What `duly demo` does: a run over SQS, a run on the store alone, one table of both, and the verdict."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

import duly
from duly_core.errors import DulyError, SettingsError
from fileindex.demo.checker import Facts
from fileindex.demo.files import files_below, standard_library
from fileindex.demo.run import Run
from fileindex.demo.stack import EXECUTIONS, Interrupt, InterruptedByUserError, running_stack

_OVER_SQS = 500
"""As many files as moto's server, which stands in for SQS, carries at ease."""
_FEWEST = 10
_FAULTS_SHOWN = 5
_TITLES = {"sqs": "SQS (moto), five services", "store": "no queue, one server"}
_OPTIONS = {"sqs": ("--queue", "sqs", "--separate"), "store": ("--queue", "store")}

EXIT_FAILED = 1
EXIT_UNUSABLE = 2
EXIT_INTERRUPTED = 130


def run_demo(directory: Path | None = None) -> int:
    """Run the demo and print what it shows; return the exit code, 0 only if every check holds."""
    interrupt = Interrupt()
    code = EXIT_UNUSABLE
    scratch = None
    try:
        root = (directory or standard_library()).resolve(strict=True)
        files = _read(root, interrupt)
        scratch = Path(tempfile.mkdtemp(prefix="duly-demo-"))
        if _run(root, files, scratch, interrupt):
            code = 0
        else:
            print(f"Kept for you: {scratch} (of each run the output of `duly up` and the execution log)")
            code = EXIT_FAILED
    except InterruptedByUserError:
        code = EXIT_INTERRUPTED
        print("Interrupted; everything is stopped.")
    except SettingsError as error:
        code = os.EX_CONFIG
        print(f"duly demo: {error}", file=sys.stderr)
    except (DulyError, duly.DulyError, OSError, ValueError) as error:
        print(f"duly demo: {error}", file=sys.stderr)
    finally:
        if scratch and code != EXIT_FAILED:
            shutil.rmtree(scratch, ignore_errors=True)
    return code


def _read(root: Path, interrupt: Interrupt) -> dict[str, Facts]:
    """Read every file directly, before Duly does."""
    files = {}
    for path, facts in files_below(root):
        interrupt.check()
        files[path] = facts
    if len(files) < _FEWEST:
        raise DulyError(f"{root} holds {len(files)} files to index: name a folder with {_FEWEST} or more")
    return files


def _run(root: Path, files: Mapping[str, Facts], scratch: Path, interrupt: Interrupt) -> bool:
    """Run on each stack; print the table and the verdict; return whether every check holds."""
    console = Console(highlight=False)
    began = time.monotonic()
    print(f"{len(files):,} files in {root}; each is a task: its SHA-256, size and lines")
    columns, faults = {}, []
    for queue, title in _TITLES.items():
        paths = [*files]
        if queue == "sqs" and len(paths) > _OVER_SQS:
            paths = [paths[number * len(paths) // _OVER_SQS] for number in range(_OVER_SQS)]
        print(f"Indexing {len(paths):,} of them: {title} ...", flush=True)
        folder = scratch / queue
        folder.mkdir()
        if os.geteuid() == 0:  # then Postgres runs as another user, who passes through
            scratch.chmod(0o711)
            folder.chmod(0o711)
        with console.status("starting") as status:
            with (
                running_stack(folder, root, _OPTIONS[queue], interrupt) as address,
                duly.Client(address) as client,
            ):
                chosen = {path: files[path] for path in paths}
                run = Run(client, folder / EXECUTIONS, chosen, status, interrupt)
                run.index()
                status.update("stopping")
            figures, checks = run.judge()
        columns[title] = figures | {
            check.claim: f"{check.count:,}  {'FAILED' if check.faults else 'ok'}" for check in checks
        }
        faults += [
            f"  {queue}: {check.claim}: {fault}" for check in checks for fault in check.faults[:_FAULTS_SHOWN]
        ]
    _print_table(console, columns)
    print(*(["", "What speaks against it:", *faults] if faults else []), sep="\n")
    seconds = time.monotonic() - began
    if faults:
        print(f"NOT every check holds; {seconds:.0f} s in all.")
    else:
        print(f'Every check holds; {seconds:.0f} s in all. What to do next: README.md, "Your first task".')
    return not faults


def _print_table(console: Console, columns: Mapping[str, Mapping[str, str]]) -> None:
    table = Table("", box=None, pad_edge=False)
    for title in columns:
        table.add_column(title, justify="right")
    for row in next(iter(columns.values())):
        table.add_row(row, *(column[row] for column in columns.values()))
    console.print()
    console.print(table)
    print("lateness: from when a task was due to its start, of those scheduled ahead (one every 40 ms)")
