"""Follows the live settings of the Executor, which its Controller has from the Frontend."""

from datetime import timedelta
from typing import TYPE_CHECKING

import grpc

from duly_core.live_settings.log_level_follower import LogLevelFollower
from duly_wire.v1 import controller_pb2

if TYPE_CHECKING:
    from duly_wire.v1.controller_pb2_grpc import ControllerServiceAsyncStub

_INTERVAL = timedelta(seconds=5)
_TIMEOUT = timedelta(seconds=5)


class SettingsFollower:
    """`run_once` asks the Controller. While it does not answer, what held before holds on."""

    def __init__(self, controller: "ControllerServiceAsyncStub", log_level: LogLevelFollower) -> None:
        self._controller = controller
        self._log_level = log_level

    async def run_once(self) -> timedelta:
        """Take what the Controller answers; return when to come back."""
        try:
            response = await self._controller.GetHostSettings(
                controller_pb2.GetHostSettingsRequest(), timeout=_TIMEOUT.total_seconds()
            )
        except grpc.aio.AioRpcError:  # requests for work and heartbeats report what is wrong
            return _INTERVAL
        if response.HasField("settings"):
            self._log_level.take(response.settings.values)
        return _INTERVAL
