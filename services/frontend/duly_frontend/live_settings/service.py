"""SettingsService: what operators change while Duly runs, held against the rules of the file."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from duly_core.config.settings import format_duration
from duly_core.config.timing import Timing
from duly_core.errors import SettingsError
from duly_core.fleet.setting_readers import SettingUser, setting_users
from duly_core.host.heartbeat_schedule import shortest_lease
from duly_core.live_settings import definitions as live_settings
from duly_core.live_settings import store as store_live_settings
from duly_core.live_settings.definitions import UnknownSettingError
from duly_core.live_settings.store import StoredSetting
from duly_core.postgres.pool import Store
from duly_core.rpc.requests.checks import check_count
from duly_core.rpc.requests.problem import Problem, check_each
from duly_core.rpc.stubs import Context
from duly_frontend.events import log
from duly_wire.time_conversion import to_timestamp
from duly_wire.v1 import settings_pb2, settings_pb2_grpc, task_pb2

_MOST = 100
_MOST_NAMED = 20


class SettingsServicer(settings_pb2_grpc.SettingsServiceServicer):
    """Answers each setting for itself; one with an error has changed nothing."""

    def __init__(
        self, store: Store, own: Mapping[str, str] | None = None, timing: Timing | None = None
    ) -> None:
        """Make one.

        Args:
            store: where settings are kept.
            own: what this process's configuration says, by name, where that is not the default.
            timing: that of hosts, as far as this process knows; None: as configured.
        """
        self._store = store
        self._timing = timing or Timing.load()
        self._own = own or {}

    async def ListSettings(  # noqa: N802 (the wire's name)
        self, _request: settings_pb2.ListSettingsRequest, _context: Context
    ) -> settings_pb2.ListSettingsResponse:
        return settings_pb2.ListSettingsResponse(settings=await self._shown(sorted(live_settings.NAMES)))

    async def SetSettings(  # noqa: N802
        self, request: settings_pb2.SetSettingsRequest, _context: Context
    ) -> settings_pb2.SetSettingsResponse:
        check_count("settings", len(request.settings), _MOST)
        checked = check_each(_checked, request.settings)
        if any(not isinstance(each, Problem) for each in checked):
            checked = await self._without_contradictions(checked)
        values = dict(each for each in checked if not isinstance(each, Problem))
        if values:
            await store_live_settings.put(self._store, values)
            log.info("settings changed", settings=values)
        names = [each if isinstance(each, Problem) else each[0] for each in checked]
        return settings_pb2.SetSettingsResponse(results=await self._results(names))

    async def ResetSettings(  # noqa: N802
        self, request: settings_pb2.ResetSettingsRequest, _context: Context
    ) -> settings_pb2.ResetSettingsResponse:
        check_count("names", len(request.names), _MOST)
        names = check_each(_known, request.names)
        valid = sorted({name for name in names if isinstance(name, str)})
        if valid:
            await store_live_settings.reset(self._store, valid)
            log.info("settings reset", settings=valid)
        return settings_pb2.ResetSettingsResponse(results=await self._results(names))

    async def _without_contradictions(
        self, checked: Sequence[tuple[str, str] | Problem]
    ) -> list[tuple[str, str] | Problem]:
        """Refuse the values that contradict another, of this call or in force."""
        kept, own = await store_live_settings.kept(self._store)
        values = {**{name: each.value for name, each in own.items()}, **self._own}
        set_before = {name: each.value for name, each in kept.items() if name in live_settings.NAMES}
        for name in set_before:
            default = live_settings.default_of(name)
            values[name] = live_settings.value_of(name, set_before, values.get(name, default))
        values |= dict(each for each in checked if not isinstance(each, Problem))
        wrong = live_settings.contradictions(values) | self._too_short(values)
        return [
            Problem("value", wrong[each[0]]) if not isinstance(each, Problem) and each[0] in wrong else each
            for each in checked
        ]

    def _too_short(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return the timeouts of leases under which hosts would take no work, with the reason."""
        least = shortest_lease(self._timing)
        found = {}
        for name in live_settings.names_of("timing"):
            text = values.get(name, live_settings.default_of(name))
            if live_settings.read(name, text) < least:
                found[name] = (
                    f"{name} ({text}) must be at least {format_duration(least)}: a host's last heartbeat, kill_latency, clock_step "
                    f"and scheduling_lateness must fit into a lease, or a task could run twice at a time"
                )
        return found

    async def _results(self, names: Sequence[str | Problem]) -> list[settings_pb2.SettingResult]:
        shown = iter(await self._shown([name for name in names if isinstance(name, str)]))
        return [
            settings_pb2.SettingResult(error=name.to_wire())
            if isinstance(name, Problem)
            else settings_pb2.SettingResult(setting=next(shown))
            for name in names
        ]

    async def _shown(self, names: Sequence[str]) -> list[settings_pb2.Setting]:
        if not names:
            return []
        kept, own = await store_live_settings.kept(self._store)
        users = await setting_users(self._store) if not kept.keys().isdisjoint(names) else []
        shown = [_to_wire(name, kept.get(name), own.get(name), self._own.get(name)) for name in names]
        for setting in shown:
            if setting.source == settings_pb2.SETTING_SOURCE_OPERATOR:
                _count_users(setting, kept[setting.name].changed_at, users)
        return shown


def _checked(asked: settings_pb2.NewSetting) -> tuple[str, str]:
    """Return name and value as they are kept."""
    name = _known(asked.name)
    try:
        return name, live_settings.written(live_settings.read(name, asked.value))
    except SettingsError as error:
        raise Problem("value", str(error)) from error


def _known(name: str) -> str:
    try:
        live_settings.field_of(name)
    except UnknownSettingError as error:
        raise Problem("name", str(error), task_pb2.ERROR_CODE_UNKNOWN_SETTING) from error
    return name


def _to_wire(
    name: str, kept: StoredSetting | None, own: StoredSetting | None, of_frontend: str | None
) -> settings_pb2.Setting:
    """Return a setting as it stands; `of_frontend` is what this process's configuration says of it."""
    default = live_settings.default_of(name)
    setting = settings_pb2.Setting(
        name=name,
        default_value=default,
        own_value=own.value if own else of_frontend or default,
        effect=live_settings.effect_of(name),
        used_by=live_settings.used_by(name),
    )
    if kept and not _is_accepted(name, kept.value):
        setting.ignored_value, kept = kept.value, None
    holds = kept or own
    if holds is None and of_frontend:
        setting.value, setting.source = of_frontend, settings_pb2.SETTING_SOURCE_CONFIGURATION
        return setting
    if holds is None:
        setting.value, setting.source = default, settings_pb2.SETTING_SOURCE_DEFAULT
        return setting
    setting.value = holds.value
    setting.source = (
        settings_pb2.SETTING_SOURCE_OPERATOR if kept else settings_pb2.SETTING_SOURCE_CONFIGURATION
    )
    setting.changed_at.CopyFrom(to_timestamp(holds.changed_at))
    return setting


def _count_users(setting: settings_pb2.Setting, changed_at: datetime, users: Sequence[SettingUser]) -> None:
    """Write who has read the settings since this one was set."""
    services = live_settings.services_of(setting.name)
    concerned = [each for each in users if each.service in services]
    without = [each for each in concerned if each.read_at is None or each.read_at < changed_at]
    setting.users = len(concerned)
    setting.users_with_it = len(concerned) - len(without)
    setting.users_without_it.extend(f"{each.service} {each.name}" for each in without[:_MOST_NAMED])


def _is_accepted(name: str, value: str) -> bool:
    """Store Consumers pass over a value that another release wrote and this one does not know."""
    try:
        live_settings.read(name, value)
    except SettingsError:
        return False
    return True
