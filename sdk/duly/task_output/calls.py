"""The part of AsyncClient that is about the output of tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from uuid import UUID

from duly.errors import InvalidTaskError
from duly.task_output.piece import OutputPiece, PieceReader
from duly.tasks.reads import TaskRef, found_ids
from duly.transport import error_mapping
from duly.transport.caller import DEFAULT_TIMEOUT
from duly.transport.client_part import ClientPart
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import output_pb2

_LONGEST_POLL = timedelta(seconds=20)
_LATE = timedelta(seconds=2)
_POLL_GRACE = timedelta(seconds=5)


class OutputCalls(ClientPart):
    """Reads what tasks print and log."""

    async def output(
        self, task: TaskRef, *, follow: bool = False, run: int | None = None, tail_bytes: int = 0
    ) -> AsyncIterator[OutputPiece]:
        """Yield what a task printed and logged, in order.

            async for piece in client.output(task, follow=True):
                print(piece.data.decode(errors="replace"), end="")

        It begins with the last run that wrote something. With `follow` it goes on, through later runs, until the task ends.
        `run`: only this one. `tail_bytes`: about so many bytes at the end of what there is; 0: all that is kept.

        Raises TaskNotFoundError, PermissionDeniedError, DecryptionError, UnavailableError.
        """
        async for page in self.output_pages(task, follow=follow, run=run, tail_bytes=tail_bytes):
            for piece in page:
                yield piece

    async def output_pages(
        self, task: TaskRef, *, follow: bool = False, run: int | None = None, tail_bytes: int = 0
    ) -> AsyncIterator[Sequence[OutputPiece]]:
        """Yield what `output` yields, as it comes: many pieces at a time."""
        caller = self._caller
        (task_id,) = await found_ids(caller, [task])
        try:
            reader = PieceReader(caller.codec, UUID(task_id).bytes)
        except ValueError:
            raise InvalidTaskError(f"{task_id!r} is not the id of a task") from None
        if tail_bytes:
            reader.skip_to_first()
        request = output_pb2.ReadOutputRequest(
            task_id=task_id, fence=run or 0, last_run=True, tail_bytes=tail_bytes
        )
        wait = _LONGEST_POLL if follow else timedelta(0)
        while True:
            request.wait.CopyFrom(to_duration(wait))
            answer = await caller.call(
                caller.output.ReadOutput,
                request,
                DEFAULT_TIMEOUT + wait + _POLL_GRACE,
                one_try=wait + _POLL_GRACE,
            )
            error_mapping.check(answer)
            if answer.chunks:
                last = answer.chunks[-1]
                request.after_fence, request.after_number = last.fence, last.number
                yield [piece for chunk in answer.chunks for piece in reader.read(chunk)]
            if answer.complete or not (follow or answer.ended or answer.chunks):
                return
            if not follow:  # what the run wrote last is on its way
                wait = _LATE if answer.ended else timedelta(0)
