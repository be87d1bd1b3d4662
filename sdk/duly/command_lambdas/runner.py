"""Makes the application: a callback for each lambda of the file, which runs the command that its payload asks for."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from duly.callbacks.app import App
from duly.callbacks.callback import Callback, checked_name
from duly.callbacks.outcomes import CallbackOutcome, Cancelled, RetriableFailure, Success
from duly.command_lambdas import control_groups
from duly.command_lambdas.folder import OutputError, RunFolder, path_of, remove_abandoned
from duly.command_lambdas.outcomes import Ended, failure_of
from duly.command_lambdas.request import Request, read_request
from duly.command_lambdas.supervised import Supervised
from duly.errors import DulyError, RegistrationError, describe
from duly.task_output.writer import write_output
from duly_wire.enums import AttachmentRole, OutputStream

if TYPE_CHECKING:
    from duly.attachments.attachment import Attachment
    from duly.command_lambdas.definition import CommandLambda, CommandLambdas
    from duly.context import TaskContext

_log = logging.getLogger("duly.commands")

_TEXT = "text/plain"


def make_app(definition: CommandLambdas) -> App:
    """Return the application of a file. Raises RegistrationError."""
    app = App(owner=definition.owner, version=definition.version)
    for each in definition.lambdas:
        app.add(
            Callback(
                name=checked_name(each.name),
                function=_Runner(each, definition.folder).run,
                policy=each.policy,
                raw=False,
                reader=functools.partial(read_request, each),
                takes_payload=True,
                takes_context=True,
            )
        )
    if not os.access(sys.executable, os.X_OK):
        raise RegistrationError(
            f"{sys.executable}: user {os.getuid()} may not run it, and commands are watched by it: install Python and Duly where this user "
            "may read them"
        )
    remove_abandoned(definition.folder)
    if Path(f"/proc/{os.getppid()}").stat().st_uid == os.getuid():
        _log.warning(
            "commands run as the worker's own user, and can read its files and its environment: set executor.callback_user"
        )
    return app


class _Runner:
    """The callback of one lambda."""

    def __init__(self, allowed: CommandLambda, base: Path) -> None:
        self._allowed = allowed
        self._base = base
        self._can_attach = False

    async def run(self, request: Request, ctx: TaskContext) -> CallbackOutcome:
        """Run a command; say what its end means."""
        try:
            folder = RunFolder(self._base)
            try:
                with ExitStack() as stack:
                    return await self._run(request, ctx, folder, stack)
            finally:
                await asyncio.shield(asyncio.to_thread(folder.remove))
        except OSError as error:
            return RetriableFailure(
                f"this host cannot run the command: {error.strerror or type(error).__name__}"
            )

    async def _run(
        self, request: Request, ctx: TaskContext, folder: RunFolder, stack: ExitStack
    ) -> CallbackOutcome:
        if not self._can_attach:  # nothing that a command says would be kept: better known before it runs
            await asyncio.to_thread(ctx.attach, b"")
            self._can_attach = True
        await asyncio.to_thread(folder.place, request.inputs)
        stdin = None
        if request.stdin is not None:
            stdin = stack.enter_context(folder.unnamed_file())
            await asyncio.to_thread(_copy, request.stdin, stdin)
        streams = {number: stack.enter_context(folder.unnamed_file()) for number in (1, 2)}
        command = Supervised(
            self._allowed, streams, lambda stream, data: write_output(ctx, OutputStream(stream), data)
        )
        try:
            command.start(request, folder, stdin, stack.enter_context(control_groups.one_of_them()))
            ended = await self._end_of(command, ctx)
        finally:
            await command.close()
        for number, name, role in (
            (1, request.stdout_name, AttachmentRole.STDOUT),
            (2, request.stderr_name, AttachmentRole.STDERR),
        ):
            try:
                file = path_of(streams[number])
                await asyncio.to_thread(ctx.keep, file, name=name, role=role, media_type=_TEXT)
            except DulyError as error:
                if ended is not None:
                    raise
                _log.warning("%s of a cancelled command is not kept: %s", name, describe(error))
        if ended is None:
            raise Cancelled
        failure = failure_of(self._allowed, ended)
        if failure is not None:
            return failure
        return await self._success(request, ctx, folder, ended)

    async def _end_of(self, command: Supervised, ctx: TaskContext) -> Ended | None:
        """Return how it ended; None: it was cancelled."""
        try:
            return await command.end()
        except asyncio.CancelledError:
            if ctx.interrupted or not ctx.cancelled:
                raise
            await command.stop(self._allowed.stop_grace)
            return None

    async def _success(
        self, request: Request, ctx: TaskContext, folder: RunFolder, ended: Ended
    ) -> CallbackOutcome:
        try:
            paths = await asyncio.to_thread(folder.files, request.outputs)
        except OutputError as error:
            return RetriableFailure(str(error))
        outputs = []
        for path in paths:
            try:
                file = folder.opened(path)
            except OSError as error:
                return RetriableFailure(f"the command left an output that cannot be read: {error.strerror}")
            with file:
                name = path.rpartition("/")[2]
                attached = await asyncio.to_thread(ctx.attach, path_of(file), name=name)
            outputs.append({"path": path, "file": attached})
        return Success(
            {
                "exit_code": ended.status,
                "seconds": ended.seconds,
                "cpu_seconds": ended.cpu_seconds,
                "outputs": outputs,
            }
        )


def _copy(attachment: Attachment, file: BinaryIO) -> None:
    with attachment.open() as source:
        while block := source.read(1 << 20):
            file.write(block)
    file.seek(0)
