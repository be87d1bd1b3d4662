"""Chores: folders with a command in `chore.json` and the files that it needs, as tasks of command lambdas.

    task = client.schedule_many([duly.chores.new_task("thumbnails")])[0]
    client.wait(task)
    duly.chores.fetch(client, task, "results")

`duly chores submit` and `duly chores fetch` do the same. `duly worker --commands FILE.toml` runs them.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from duly.attachments.attachment import Attachment
from duly.errors import DulyError
from duly.tasks.new_task import NewTask, ScheduledTask
from duly_wire.attachment_rules import MOST_USES, name_problem
from duly_wire.enums import AttachmentRole, Priority, TaskStatus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from duly.attachments.attachment import Progress
    from duly.sync_client import Client
    from duly.tasks.task import Task

__all__ = ["ChoreError", "fetch", "new_task"]

CHORE = "chore.json"
WORKER = "worker.json"
_MARKS = frozenset((CHORE, WORKER, "do_it.txt", "doing_it.txt", "done.txt"))
"""Files of a chore's folder that say something of it, and are none of its inputs."""
_FIELDS = frozenset(
    (
        *("chore_id", "chore_tss", "producer_id", "runner", "command", "argv", "result", "error"),
        *("stdin", "outputs", "environment", "requires", "priority"),
    )
)
_NAMESPACE = "chores"
_RUN = "run"
_LARGEST = 1024 * 1024
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_STATES = {
    TaskStatus.SUCCESS: "done",
    TaskStatus.CANCELLED: "cancelled",
    TaskStatus.FATAL_FAILURE: "failed",
}


class ChoreError(DulyError):
    """A folder is no chore, or what came of one cannot be saved. The message says what to change."""


def new_task(
    folder: str | os.PathLike[str],
    *,
    lambda_name: str = "",
    follow_links: bool = False,
    progress: Progress | None = None,
) -> NewTask:
    """Return the task that a chore's folder describes.

    `lambda_name`: instead of chores/RUNNER, or chores/run if `chore.json` names no runner. `follow_links`: take files that links lead to,
    such as those of git-annex. `progress`: called while files are hashed and uploaded.

    Raises ChoreError, OSError.
    """
    path = Path(folder)
    said = _read(path / CHORE)
    streams = {"stdout": _name(said, "result", "stdout.txt"), "stderr": _name(said, "error", "stderr.txt")}
    inputs = {
        file.name: Attachment(file, progress=progress)
        for file in _files(path, follow_links=follow_links)
        if file.name not in streams.values()
    }
    payload: dict[str, Any] = dict(streams)
    if ("command" in said) == ("argv" in said):
        _refuse('needs a "command" for its runner, or an "argv": one of the two')
    payload |= {"script": said["command"]} if "command" in said else {"argv": said["argv"]}
    if "stdin" in said:
        name = _text(said, "stdin")
        if name not in inputs:
            _refuse('"stdin" names no file of the folder')
        payload["stdin"] = inputs.pop(name)
    if len(inputs) + ("stdin" in payload) > MOST_USES:
        raise ChoreError(
            f"{path} has more than {MOST_USES} files, which is what a task takes: pack them into an archive"
        )
    if inputs:
        payload["inputs"] = list(inputs.values())
    payload |= {each: said[each] for each in ("outputs", "environment") if each in said}
    if not lambda_name:
        runner = _text(said, "runner") if "runner" in said else ""
        if "command" in said and not runner:
            _refuse('"command" needs a "runner" that runs it, such as "bash"')
        lambda_name = f"{_NAMESPACE}/{runner or _RUN}"
    chore_id = _text(said, "chore_id") if "chore_id" in said else ""
    return NewTask(
        lambda_name,
        payload,
        idempotency_key=chore_id or None,
        requires=_texts(said, "requires"),
        priority=_priority(said),
    )


def fetch(
    client: Client,
    task: str | ScheduledTask,
    folder: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
) -> list[Path]:
    """Save what a chore that ended left: its output, its errors and the files that it was asked for; return their paths.

    `worker.json` says how it ended, as in the chores of git repositories. Files that are there are replaced; no link is followed.

    Raises ChoreError if it has not ended, TaskNotFoundError, and what `client.fetch` raises.
    """
    task_id = task if isinstance(task, str) else task.task_id
    found = client.get(task_id)
    if not found.status.is_final:
        raise ChoreError(f"the task is {found.status.name}: wait for its end, as `duly wait {task_id}` does")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    saved = []
    for place, attachment in _left_by(client, found):
        path = place_in(target, place)
        client.fetch(attachment, path, progress=progress)
        saved.append(path)
    path = place_in(target, WORKER)
    path.write_text(json.dumps(_worker(found), indent=2) + "\n", encoding="utf-8")
    return [*saved, path]


def _read(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except FileNotFoundError:
        raise ChoreError(
            f'{path} is not there: write {{"runner": "bash", "command": "..."}} into it'
        ) from None
    if len(data) > _LARGEST:
        raise ChoreError(f"{path} is larger than 1 MiB: put what is large into files beside it")
    try:
        said = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ChoreError(f"{path} is not JSON: {str(error)[:200]}") from None
    if not isinstance(said, Mapping):
        raise ChoreError(f"{path} must have an object")
    unknown = sorted(said.keys() - _FIELDS)
    if unknown:
        _refuse(f"has a field {unknown[0][:64]!r} that no chore has: there are {', '.join(sorted(_FIELDS))}")
    return said


def _files(folder: Path, *, follow_links: bool) -> Iterator[Path]:
    """Yield the files of a folder, without hidden ones and those that are no inputs."""
    for path in sorted(folder.iterdir()):
        if path.name in _MARKS or path.name.startswith("."):
            continue
        kind = path.stat() if follow_links else path.lstat()
        if stat.S_ISLNK(kind.st_mode):
            raise ChoreError(
                f"{path} is a link: --follow-links (follow_links=True) takes the file that it leads to"
            )
        if stat.S_ISDIR(kind.st_mode):
            raise ChoreError(
                f"{path} is a folder, and a chore's files have no folders: pack it into an archive"
            )
        if not stat.S_ISREG(kind.st_mode):
            raise ChoreError(f"{path} is no regular file")
        if problem := name_problem(path.name):
            raise ChoreError(f"the name {path.name!r} {problem}: rename the file")
        yield path


def _name(said: Mapping[str, Any], field: str, default: str) -> str:
    name = _text(said, field) if field in said else default
    if problem := name_problem(name):
        _refuse(f'"{field}" {problem}')
    if name in _MARKS:
        _refuse(f'"{field}" is the name of a file that says something of the chore')
    return name


def _text(said: Mapping[str, Any], field: str) -> str:
    value = said[field]
    if not isinstance(value, str) or not value:
        _refuse(f'"{field}" must be a text')
    return value


def _texts(said: Mapping[str, Any], field: str) -> tuple[str, ...]:
    value = said.get(field, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        _refuse(f'"{field}" must be a list of texts')
    return tuple(value)


def _priority(said: Mapping[str, Any]) -> Priority:
    if "priority" not in said:
        return Priority.NORMAL
    try:
        return Priority[_text(said, "priority").upper()]
    except KeyError:
        _refuse(f'"priority" is one of {", ".join(each.name.lower() for each in Priority)}')


def _refuse(problem: str) -> NoReturn:
    raise ChoreError(f"{CHORE} {problem}" if problem.startswith(("has", "needs")) else f"{CHORE}: {problem}")


def _left_by(client: Client, task: Task) -> Iterator[tuple[str, Attachment]]:
    """Yield what a task left, each with its path in the folder."""
    for use in client.attachments(task.task_id):
        if use.role in (AttachmentRole.STDOUT, AttachmentRole.STDERR):
            yield use.attachment.name, use.attachment
    result = task.result if task.status is TaskStatus.SUCCESS else None
    outputs = result.get("outputs") if isinstance(result, Mapping) else None
    for each in outputs if isinstance(outputs, list) else ():
        if (
            isinstance(each, Mapping)
            and isinstance(each.get("path"), str)
            and isinstance(each.get("file"), Attachment)
        ):
            yield each["path"], each["file"]


def place_in(target: Path, place: str) -> Path:
    """Return where in a folder a file is written. Raises ChoreError.

    A worker chose the path: it must stay within the folder, and pass through no link.
    """
    parts = place.split("/")
    if any(name_problem(each) for each in parts):
        raise ChoreError(f"the chore left a file whose path may not be one: {place[:200]!r}")
    path = target
    for each in parts[:-1]:
        path /= each
        if not path.is_symlink():
            path.mkdir(exist_ok=True)
        if path.is_symlink():
            raise ChoreError(f"{path} is a link: remove it, or fetch into another folder")
    path /= parts[-1]
    if path.is_symlink() or path.is_dir():
        raise ChoreError(f"{path} is a link or a folder: remove it, or fetch into another folder")
    return path


def _worker(task: Task) -> dict[str, Any]:
    said = {
        "task_id": task.task_id,
        "work_start_tss": _tss(task.started_at),
        "state": _STATES.get(task.status, task.status.name.lower()),
        "work_finish_tss": _tss(task.finished_at),
    }
    return said if task.failure is None else said | {"failure": task.failure.message}


def _tss(at: datetime | None) -> str:
    return "" if at is None else at.strftime("%Y%m%d%H%M%S")
