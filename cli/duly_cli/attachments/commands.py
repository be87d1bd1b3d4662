"""`duly attachments`: files that tasks were given, returned and kept."""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

import duly
from duly_cli.attachments.progress_bar import ProgressBar
from duly_cli.output.json_text import show_all
from duly_cli.output.safe_text import one_line, say
from duly_cli.output.table import columns
from duly_cli.startup.nouns import Noun
from duly_cli.startup.option_values import parse_member
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected

_Task = Annotated[str, typer.Argument(metavar="TASK_ID", help="The task.")]
_STDOUT = "-"
_SHORTEST_HASH = 8

_attachments = Verbs(add_completion=False, cls=Noun)


def add_commands(app: typer.Typer) -> None:
    """Add `attachments` with its verbs."""
    app.add_typer(
        _attachments,
        name="attachments",
        rich_help_panel="Tasks",
        help="List the files of a task, and fetch them.",
    )


@_attachments.command("list")
def list_attachments(task_id: _Task, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """List the files of a task: its inputs, then what its last run kept and returned."""
    with connected(address) as client:
        found = client.attachments(task_id)
    show_all(found, _table, _as_object, as_json=as_json)


@_attachments.command("fetch")
def fetch(
    task_id: _Task,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help=f"Its name, or at least {_SHORTEST_HASH} digits of its hash. Without it: all that there are.",
            show_default=False,
        ),
    ] = None,
    path: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="The file to write, or a folder for files with the attachments' names; - is standard output.",
        ),
    ] = ".",
    role: Annotated[
        str | None,
        typer.Option(
            help="Only those of this role: input, result, stdout, stderr, file.", show_default=False
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Fetch files of a task. A fetch that was interrupted goes on where it stopped."""
    wanted = None if role is None else parse_member("--role", role, duly.AttachmentRole, "a role")
    with connected(address) as client:
        found = [
            use
            for use in client.attachments(task_id)
            if wanted in (None, use.role) and (name is None or _is_meant(use, name))
        ]
        if not found:
            what = f" {one_line(name)!r}" if name is not None else ""
            say(
                f"duly: the task has no attachment{what}: `duly attachments list {one_line(task_id)}`",
                err=True,
            )
            raise typer.Exit(1)
        if path == _STDOUT:
            if len(found) > 1:
                raise typer.BadParameter(
                    f"{len(found)} attachments are meant, and one goes to standard output: name it"
                )
            sys.stdout.buffer.write(client.read_attachment(found[0].attachment))
            sys.stdout.buffer.flush()
            return
        for use, target in _targets(found, Path(path), force=force):
            with ProgressBar() as bar:
                client.fetch(use.attachment, target, progress=bar.told)
            say(str(target))


def _is_meant(use: duly.AttachmentUse, name: str) -> bool:
    by_hash = len(name) >= _SHORTEST_HASH and use.attachment.hash.startswith(name.lower())
    return use.attachment.name == name or by_hash


def _targets(
    found: list[duly.AttachmentUse], path: Path, *, force: bool
) -> list[tuple[duly.AttachmentUse, Path]]:
    """Return where each is written; all are checked before the first is fetched."""
    from duly.attachments.saving import target_of

    if len(found) > 1 and not path.is_dir():
        raise typer.BadParameter(
            f"{len(found)} attachments are meant: name one, or name a folder with --output"
        )
    targets: dict[Path, duly.AttachmentUse] = {}
    for use in found:
        try:
            target = target_of(path, use.attachment.name)
        except ValueError as error:
            raise typer.BadParameter(f"{error}, with --output FILE") from error
        before = targets.setdefault(target, use)
        if before is not use:
            raise typer.BadParameter(
                f"two attachments are called {one_line(use.attachment.name)!r}: name them by their hashes, or use --role"
            )
        if target.exists() and not force:
            raise typer.BadParameter(f"{one_line(str(target))} exists: --force replaces it")
    return [(use, target) for target, use in targets.items()]


def _as_object(use: duly.AttachmentUse) -> dict[str, Any]:
    attachment = use.attachment
    return {
        "name": attachment.name,
        "role": use.role.name.lower(),
        "stored_bytes": use.stored_bytes,
        "media_type": attachment.media_type,
        "encrypted": attachment.encrypted,
        "hash": attachment.hash,
    }


def _table(found: Iterable[duly.AttachmentUse]) -> Iterator[str]:
    rows = [
        (
            one_line(use.attachment.name),
            use.role.name.lower(),
            f"{use.stored_bytes:,}",
            one_line(use.attachment.media_type),
            use.attachment.hash,
        )
        for use in found
    ]
    if not rows:
        return iter(["the task has no attachments"])
    return columns(
        ("NAME", "ROLE", "BYTES", "MEDIA TYPE", "HASH"), rows, left_out_first=("HASH", "MEDIA TYPE")
    )


def add_files(payload: Any, files: Iterable[str], bar: ProgressBar) -> Any:
    """Return a payload with files put in, each as FIELD=PATH; a field that is named several times has a list.

    Raises:
        typer.BadParameter: the payload is no object, or has the field already.
    """
    added: dict[str, list[duly.Attachment]] = {}
    for each in files:
        field, is_said, file = each.partition("=")
        if not (field and is_said and file):
            raise typer.BadParameter(f"--attach {json.dumps(each)}: write FIELD=PATH")
        if not Path(file).is_file():
            raise typer.BadParameter(f"--attach {json.dumps(each)}: there is no such file")
        added.setdefault(field, []).append(duly.Attachment(file, progress=bar.told))
    if not added:
        return payload
    if payload is None:
        payload = {}
    if not isinstance(payload, dict):
        raise typer.BadParameter("--attach puts files into fields: the payload must be an object")
    for field in added:
        if field in payload:
            raise typer.BadParameter(f"--attach: the payload has a field {json.dumps(field)} already")
    return payload | {field: one[0] if len(one) == 1 else one for field, one in added.items()}
