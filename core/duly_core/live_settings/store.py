"""What operators have set while Duly runs, and what Store Consumers say of their own: two small tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from duly_core.config.live_sections import LONGEST_LEASE
from duly_core.postgres.channels import SETTING_CHANNEL
from duly_core.postgres.pool import Store
from duly_core.postgres.statements import Statement

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


_SURROUNDINGS = Statement(
    "surroundings",
    """
select 'lambda', name, '' from lambda
union all
select 'setting', name, value from setting
union all
select 'former', name, value from former_setting where until_at > duly_now()
order by 1, 2
""",
)

_KEPT = Statement(
    "kept",
    """
select true, name, value, changed_at from setting
union all
select false, name, value, changed_at from own_setting
""",
)

_SET = Statement(
    "set",
    """
with asked as (
    select * from unnest(%(names)b::text[], %(texts)b::text[]) as asked (name, value)
), former as (
    -- what is set now, too: whoever replaces it at this moment does not see it
    insert into former_setting (name, value, until_at)
    select name, value, duly_now() + %(kept_for)b
    from (
        select setting.name, setting.value from setting join asked on asked.name = setting.name
        union
        select name, value from asked
    ) as known
    where name like 'timing.%%'
    on conflict (name, value) do update set until_at = excluded.until_at
), forgotten as (
    -- but what is written above
    delete from former_setting as former
    where until_at < duly_now()
        and not exists (select from setting where setting.name = former.name and setting.value = former.value)
        and not exists (select from asked where asked.name = former.name and asked.value = former.value)
), written as (
    insert into setting (name, value, changed_at)
    select name, value, duly_now() from asked
    order by name
    on conflict (name) do update set value = excluded.value, changed_at = excluded.changed_at
        where setting.value <> excluded.value
    returning name
)
select pg_notify(%(channel)b, '') from (select count(*) from written having count(*) > 0) as changed
""",
)

_RESET = Statement(
    "reset",
    """
with gone as (
    delete from setting where name = any(%(names)b::text[]) returning name, value
), former as (
    insert into former_setting (name, value, until_at)
    select name, value, duly_now() + %(kept_for)b from gone where name like 'timing.%%'
    on conflict (name, value) do update set until_at = excluded.until_at
)
select pg_notify(%(channel)b, '') from (select count(*) from gone having count(*) > 0) as changed
""",
)

_PUBLISH_OWN = Statement(
    "publish_own",
    """
with gone as (
    delete from own_setting where name <> all(%(names)b::text[]) returning name
), written as (
    insert into own_setting (name, value, changed_at)
    select name, value, duly_now() from unnest(%(names)b::text[], %(texts)b::text[]) as asked (name, value)
    order by name
    on conflict (name) do update set value = excluded.value, changed_at = excluded.changed_at
        where own_setting.value <> excluded.value
    returning name
)
select count(*) from gone, written
""",
)


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
