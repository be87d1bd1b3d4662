"""Reads what the callback processes wrote (`journal.py`) when they are done, or dead."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.chaos.history import Execution, FileRead, FileSent
from tests.chaos.journal import OUTCOMES, SUFFIX


@dataclass(frozen=True, slots=True)
class JournalRead:
    """What a folder of journals holds."""

    executions: tuple[Execution, ...]
    """In the order of their starts."""
    unreadable: tuple[str, ...]
    """Lines that are no record, each with its place; `History.unreadable`."""
    torn: int
    """Files whose last line was cut short by a kill: it never counted."""
    reads: tuple[FileRead, ...] = ()
    sent: tuple[FileSent, ...] = ()


@dataclass(slots=True)
class _Files:
    """What callbacks did with attachments."""

    reads: list[FileRead] = field(default_factory=list)
    sent: list[FileSent] = field(default_factory=list)


def read_journal(folder: Path) -> JournalRead:
    """Read every journal in the folder."""
    executions: list[Execution] = []
    unreadable: list[str] = []
    torn = 0
    files = _Files()
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        torn += len(whole) < len(content)
        of_process: dict[int, Execution] = {}
        for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
            place = f"{path.name}:{number}"
            try:
                _take(of_process, files, path.name.removesuffix(SUFFIX), place, line)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                unreadable.append(f"{place}: {type(error).__name__} {error}: {line[:200]!r}")
        executions += of_process.values()
    executions.sort(key=lambda execution: execution.started_ns)
    return JournalRead(tuple(executions), tuple(unreadable), torn, tuple(files.reads), tuple(files.sent))


def _take(executions: dict[int, Execution], files: _Files, process: str, place: str, line: bytes) -> None:
    record = json.loads(line)
    number = record["number"]
    if record["event"] == "start":
        if number in executions:
            raise ValueError(f"execution {number} starts twice")
        executions[number] = Execution(
            record["task_id"],
            record["attempt"],
            record["fence"],
            record["pid"],
            process,
            record["alone"],
            record["boot_ns"],
            host=record.get("host", ""),
            edit=record.get("edit", 0),
            line=place,
        )
    elif record["event"] == "end":
        if executions[number].ended_ns is not None or record["outcome"] not in OUTCOMES:
            raise ValueError(f"execution {number} ends twice, or in no known way")
        executions[number] = replace(
            executions[number], ended_ns=record["boot_ns"], outcome=record["outcome"]
        )
    elif record["event"] == "read":
        of, wanted, got = executions[number], record["wanted"], record["got"]
        files.reads.append(FileRead(of.task_id, of.fence, record["boot_ns"], wanted, got, record["refused"]))
    elif record["event"] == "sent":
        of = executions[number]
        files.sent.append(FileSent(of.task_id, of.fence, record["boot_ns"]))
    else:
        raise ValueError("no event that a journal has")
