"""What operators have set while Duly runs, and what Store Consumers say of their own: two small tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from duly_core.config.live_sections import LONGEST_LEASE
from duly_core.live_settings.statements import LIVE_SETTINGS
from duly_core.postgres.channels import SETTING_CHANNEL
from duly_core.postgres.pool import Store

SETTINGS_KNOWN_FOR = timedelta(minutes=5)
"""A server that has not read the settings for so long gives no lease that is longer than that of its configuration."""

_FORMER_FOR = LONGEST_LEASE + SETTINGS_KNOWN_FOR
"""A lease of a timeout has ended so long after the timeout was changed."""


@dataclass(frozen=True, slots=True)
class StoredSetting:
    """A setting as the store holds it."""

    value: str
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class ConfigSnapshot:
    """What others change and a Store Consumer goes by."""

    lambdas: list[str]
    settings: dict[str, str]
    """By name, what operators have set."""
    former: list[tuple[str, str]] = field(default_factory=list)
    """Name and value of what they set lately of `[timing]`, or had set until lately: leases of it may be in force."""


_SURROUNDINGS = LIVE_SETTINGS["surroundings"]

_KEPT = LIVE_SETTINGS["kept_settings"]

_SET = LIVE_SETTINGS["set_settings"]

_RESET = LIVE_SETTINGS["reset_settings"]

_PUBLISH_OWN = LIVE_SETTINGS["publish_own_settings"]


async def config_snapshot(store: Store) -> ConfigSnapshot:
    """The lambdas that exist and what operators have set, in one small statement."""
    found = ConfigSnapshot([], {})
    for kind, name, value in await store.run(_SURROUNDINGS, {}):
        if kind == "lambda":
            found.lambdas.append(name)
        elif kind == "setting":
            found.settings[name] = value
        else:
            found.former.append((name, value))
    return found


async def values(store: Store) -> dict[str, str]:
    """By name, what operators have set."""
    return {name: value for live, name, value, _ in await store.run(_KEPT, {}) if live}


async def kept(store: Store) -> tuple[dict[str, StoredSetting], dict[str, StoredSetting]]:
    """By name what operators have set, and what the Store Consumer that started last has of its own."""
    found: dict[bool, dict[str, StoredSetting]] = {True: {}, False: {}}
    for live, name, value, changed_at in await store.run(_KEPT, {}):
        found[live][name] = StoredSetting(value, changed_at)
    return found[True], found[False]


async def put(store: Store, values: Mapping[str, str]) -> None:
    """Set these, all or none; one that is at its value already keeps the time at which it was set."""
    await store.run(_SET, _texts(values) | {"channel": SETTING_CHANNEL, "kept_for": _FORMER_FOR})


async def reset(store: Store, names: Sequence[str]) -> None:
    """Let these be what each process has of its own again."""
    await store.run(_RESET, {"names": list(names), "channel": SETTING_CHANNEL, "kept_for": _FORMER_FOR})


async def publish_own(store: Store, values: Mapping[str, str]) -> None:
    """Write what this process has of its own, for operators to see: all that is not at its default."""
    await store.run(_PUBLISH_OWN, _texts(values))


def _texts(values: Mapping[str, str]) -> dict[str, list[str]]:
    return {"names": list(values), "texts": list(values.values())}
