"""Reads what a callback process tells its Executor. The owner's code can write to the link: its frames are hostile input."""

import asyncio

from google.protobuf.message import DecodeError

from duly_core.errors import InvalidRequestError
from duly_core.rpc.requests.field_count import check_field_count
from duly_executor.processes import frames
from duly_executor.processes.report_checks import refuse_large
from duly_wire.v1 import callback_pb2

_FRAMES_IN_A_ROW = 32
"""What is buffered is read without a pause: after so many frames, heartbeats and other processes have their turn."""

_SMALL = 32 * 1024
"""Bytes: no result in a report that is no larger is too large for the HSC."""


class ReportReader:
    """Reads the reports of one callback process, one after the other."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream
        self._frames = 0

    async def read(self) -> callback_pb2.CallbackReport | None:
        """Return the next report; None when the process has closed the link.

        Raises:
            DecodeError: it is none, is empty, or has more fields than an Executor has memory for.
        """
        self._frames += 1
        if self._frames % _FRAMES_IN_A_ROW == 0:
            await asyncio.sleep(0)
        try:
            size = frames.length(await self._stream.readexactly(frames.LENGTH.size))
            if not size:
                raise DecodeError("an empty frame")  # nobody has a reason to send one, over and over
            body = await self._stream.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        try:
            check_field_count(body, callback_pb2.CallbackReport.DESCRIPTOR)
        except InvalidRequestError as error:
            raise DecodeError(str(error)) from error
        report = callback_pb2.CallbackReport.FromString(body)
        if len(body) > _SMALL:
            refuse_large(report)
        return report
