"""Follows the live settings of the Executor, which its Controller has from the Frontend."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc

from duly_core.live_settings.log_level_follower import LogLevelFollower
from duly_wire.v1 import controller_pb2

if TYPE_CHECKING:
    from duly_wire.v1.controller_pb2_grpc import ControllerServiceAsyncStub

_INTERVAL = timedelta(seconds=5)
_WITH_LABELS = timedelta(seconds=1)
"""Of an Executor with labels: the first task that requires some of them waits for this."""
_TIMEOUT = timedelta(seconds=5)


class SettingsFollower:
    """`run_once` asks the Controller. While it does not answer, what held before holds on."""

    def __init__(
        self,
        controller: "ControllerServiceAsyncStub",
        log_level: LogLevelFollower,
        take_label_queues: Callable[[Sequence[str]], object] | None = None,
    ) -> None:
        """Args: `take_label_queues` is given the queues of tasks that require labels; None: the Executor has no labels."""
        self._controller = controller
        self._log_level = log_level
        self._take_label_queues = take_label_queues
        self._interval = _INTERVAL if take_label_queues is None else _WITH_LABELS

    async def run_once(self) -> timedelta:
        """Take what the Controller answers; return when to come back."""
        try:
            response = await self._controller.GetHostSettings(
                controller_pb2.GetHostSettingsRequest(), timeout=_TIMEOUT.total_seconds()
            )
        except grpc.aio.AioRpcError:  # requests for work and heartbeats report what is wrong
            return self._interval
        if self._take_label_queues is not None:
            self._take_label_queues(response.label_queues)
        if response.HasField("settings"):
            self._log_level.take(response.settings.values)
        return self._interval
