"""The settings that operators change while Duly runs: list, set, reset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from duly.errors import DulyError, InvalidSettingError, InvalidTaskError
from duly.transport import error_mapping
from duly.transport.caller import Caller
from duly.transport.client_part import ClientPart, only
from duly.transport.message_fields import view
from duly_wire.enums import SettingSource
from duly_wire.v1 import settings_pb2, task_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting as it stands; values are text, as in the file: "2s", "true", "500"."""

    name: str
    value: str
    source: SettingSource
    # Since when it has this value; None for a default.
    changed_at: datetime | None
    default_value: str
    # What holds once it is reset: what the processes have in their own file or environment, or the default.
    own_value: str
    # What it does, in a sentence.
    effect: str
    # An operator's value that this release does not accept and ignores; empty: none is ignored.
    ignored_value: str
    # The processes that take a change: "Store Consumer, HSC".
    used_by: str
    # Of an operator's value: how many processes and hosts that report themselves use the setting, and how many have read it since.
    users: int = 0
    users_with_it: int = 0
    # Those that have not, 20 at most: "hsc HOST:PID:ID", "host ID".
    users_without_it: tuple[str, ...] = ()

    @classmethod
    def from_proto(cls, setting: settings_pb2.Setting) -> Setting:
        """Return the view of a setting as it came over the wire."""
        return view(cls, setting)


class SettingCalls(ClientPart):
    """The part of AsyncClient that is about settings."""

    async def settings(self) -> list[Setting]:
        """Return every setting that can be changed while Duly runs, by name."""
        caller = self._caller
        response = await caller.call(caller.settings.ListSettings, settings_pb2.ListSettingsRequest())
        return [Setting.from_proto(setting) for setting in response.settings]

    async def set_setting(self, name: str, value: str) -> Setting:
        """Set a setting in all processes that go by it, those that start later too, and return it as it is now.

            await client.set_setting("store_consumer.poll_interval", "500ms")

        Seen within one poll interval. Raises UnknownSettingError, InvalidSettingError.
        """
        return only(await self.set_settings({name: value}))

    async def set_settings(self, values: Mapping[str, str]) -> list[Setting | DulyError]:
        """Set settings, each for itself; return each, in order, as it is now, or why it was not set.

        Values are texts, as in the file: "500ms", "true", "1000". Raises TypeError where one is not.
        """
        for name, value in values.items():
            if not isinstance(value, str):
                raise TypeError(
                    f"{name}: a setting's value is a text, as in the file, not {type(value).__name__}"
                )
        caller = self._caller
        asked = [settings_pb2.NewSetting(name=name, value=value) for name, value in values.items()]
        if not asked:  # which the Frontend refuses
            return []
        return await _change(
            caller, caller.settings.SetSettings, settings_pb2.SetSettingsRequest(settings=asked)
        )

    async def reset_settings(self, names: Iterable[str]) -> list[Setting | DulyError]:
        """Undo what operators set; return each setting, in order, as it is now, or why it was not reset."""
        if isinstance(names, str):
            raise TypeError(f"give a list of names: [{names!r}]")
        caller = self._caller
        asked = list(names)
        if not asked:
            return []
        return await _change(
            caller, caller.settings.ResetSettings, settings_pb2.ResetSettingsRequest(names=asked)
        )


async def _change(caller: Caller, method: Any, request: object) -> list[Setting | DulyError]:
    try:
        response = await caller.call(method, request)
    except InvalidTaskError as error:
        raise InvalidSettingError(str(error)) from error
    return [
        _error(result.error) if result.HasField("error") else Setting.from_proto(result.setting)
        for result in response.results
    ]


def _error(error: task_pb2.ItemError) -> DulyError:
    if error.code == task_pb2.ERROR_CODE_INVALID_ARGUMENT:
        return InvalidSettingError(error.message)
    return error_mapping.from_item(error)
