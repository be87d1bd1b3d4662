"""`duly demo`: Duly on real input, on this machine, in about half a minute."""

import asyncio
import json as json_format
import logging
import os
import sys
import time
from pathlib import Path

from rich.console import Console

import duly
from duly_core.errors import DulyError
from duly_local.demo.evaluation import Evaluation
from duly_local.demo.files import Input, find_input
from duly_local.demo.place import Place
from duly_local.demo.report import Report
from duly_local.demo.session import Queue, Session
from duly_local.signals import StoppedWhileStartingError

EXIT_FAILED = 1
EXIT_UNUSABLE = 2
EXIT_INTERRUPTED = 130


def run_demo(directory: Path | None, queue: Queue, json: Path | None, *, kill_an_executor: bool) -> int:
    """Run it and print what it shows; the exit code, 0 if everything that it claims held.

    `directory` None: the running Python's standard library. `json`: where to write the figures as well.
    """
    try:
        found = find_input(directory)
        _check_target(json)
        place = Place.make()
    except DulyError as error:
        return _complain(error, EXIT_UNUSABLE)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    report = Report(Console(highlight=False))
    # An interrupt that hits it in the middle of a statement is no news for the reader.
    logging.getLogger("psycopg").addHandler(logging.NullHandler())
    try:
        code = _run(found, queue, json, place, report, kill=kill_an_executor)
    except BaseException:
        place.remove()
        raise
    if code == EXIT_FAILED:
        report.kept(place.folder, place.services_log)
    else:
        place.remove()
    return code


def _run(found: Input, queue: Queue, json: Path | None, place: Place, report: Report, *, kill: bool) -> int:
    started = time.monotonic()
    try:
        report.input(found)
        place.set_environment(found.directory)
        session = Session(found, queue, place, report, kill=kill)
        evaluation = asyncio.run(session.run())
    except (StoppedWhileStartingError, asyncio.CancelledError, KeyboardInterrupt):
        report.line("\nInterrupted; everything is stopped.")
        return EXIT_INTERRUPTED
    except (DulyError, duly.DulyError) as error:
        return _complain(error, EXIT_FAILED)
    session.figures["seconds"]["total"] = time.monotonic() - started
    report.table(evaluation.rows, evaluation.total)
    report.verdict(evaluation.claims)
    report.end(session.figures["seconds"]["total"], passed=evaluation.passed)
    return _write(json, session, evaluation)


def _write(json: Path | None, session: Session, evaluation: Evaluation) -> int:
    if json is not None:
        figures = session.figures | evaluation.as_json()
        try:
            json.write_text(json_format.dumps(figures, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            return _complain(DulyError(f"{json} cannot be written: {error.strerror}"), EXIT_FAILED)
    return 0 if evaluation.passed else EXIT_FAILED


def _check_target(json: Path | None) -> None:
    """Better now than after half a minute."""
    if json is None:
        return
    if json.is_dir() or not os.access(json if json.exists() else json.parent, os.W_OK):
        raise DulyError(
            f"the figures cannot be written to {json}: name a file in a folder that you may write"
        )


def _complain(error: Exception, code: int) -> int:
    print(f"duly demo: {error}", file=sys.stderr, flush=True)  # noqa: T201 (for people, not for a log)
    return code
