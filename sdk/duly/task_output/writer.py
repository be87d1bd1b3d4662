"""Adds to the output of a running task what its callback reads elsewhere, as from a command that it runs. Free of gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duly.context import TaskContext
    from duly_wire.enums import OutputStream


def write_output(ctx: TaskContext, stream: OutputStream, data: bytes) -> None:
    """Add bytes to the output of the task of this attempt, as if its callback had written them to that stream.

        write_output(ctx, OutputStream.STDERR, process.stderr.read1(65_536))

    For Duly's own applications, such as that which runs commands. Give it what was read, as it comes: any number of bytes, not only whole
    lines. Any thread may call it, until the callback returns. It never blocks, and never fails: it keeps up to 1 MiB that was not sent yet,
    and leaves out the oldest bytes beyond. What is written reaches readers within a second. Without a server, as in `duly.testing.run`, or
    where the output of the lambda is not kept, it does nothing.
    """
    ctx._write_output(stream, data)  # noqa: SLF001 (of this package; callbacks print instead)
