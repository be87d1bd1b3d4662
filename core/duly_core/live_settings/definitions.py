"""The settings that operators change while Duly runs: which there are, and what each may be.

They are settings like the others, with a default, a line in the file and an environment variable; what an operator
sets goes before those, in every process, until it is reset.
"""

import difflib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from duly_core.config.live_sections import LIVE, REPORTED_AS, USED_BY
from duly_core.config.section_names import SECTIONS
from duly_core.config.setting_errors import in_plain_words
from duly_core.config.settings import Section, format_duration
from duly_core.config.timing import Timing
from duly_core.errors import SettingsError

LONGEST_VALUE = 100
"""Characters; so long the store keeps them."""


class UnknownSettingError(SettingsError):
    """There is no such setting that can be changed while Duly runs."""


_FIELDS: Mapping[str, tuple[str, FieldInfo]] = {
    f"{section.SECTION}.{field}": (field, info)
    for section in LIVE
    for field, info in section.model_fields.items()
}
_READERS: Mapping[str, TypeAdapter[Any]] = {
    name: TypeAdapter(Annotated[info.annotation, info])  # type: ignore[arg-type]  # no type checker follows
    for name, (_, info) in _FIELDS.items()
}

NAMES = tuple(_FIELDS)
"""Each with its section: `store_consumer.poll_interval`."""


def names_of(section: str) -> list[str]:
    """The names of a section's settings."""
    return [name for name in NAMES if name.startswith(f"{section}.")]


def field_of(name: str) -> str:
    """The name of a setting within its section.

    Raises:
        UnknownSettingError: no setting has this name.
    """
    if len(name) > LONGEST_VALUE:  # to look for a name that resembles it would take long
        raise UnknownSettingError(f"there is no setting with a name of {len(name):,} characters")
    if name not in _FIELDS:
        raise UnknownSettingError(_why_not(name))
    return _FIELDS[name][0]


def read(name: str, text: str) -> Any:
    """A setting's value, read and checked as from the file.

    Raises:
        UnknownSettingError: no setting has this name.
        SettingsError: it cannot be this.
    """
    field_of(name)
    if len(text) > LONGEST_VALUE:
        raise SettingsError(f"{name}: at most {LONGEST_VALUE} characters")
    try:
        return _READERS[name].validate_python(text)
    except ValidationError as error:
        raise SettingsError(f"{name}: {in_plain_words(error.errors()[0])}") from error


def written(value: object) -> str:
    """A value as people write it."""
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def default_of(name: str) -> str:
    """What holds if nobody says otherwise."""
    return written(_FIELDS[name][1].default)


def effect_of(name: str) -> str:
    """What the setting does, in a sentence."""
    return " ".join((_FIELDS[name][1].description or "").split())


def used_by(name: str) -> str:
    """Return which processes take a change."""
    return ", ".join(USED_BY[name.partition(".")[0]])


def services_of(name: str) -> AbstractSet[str]:
    """Return the services that take a change, as their processes report themselves; `host` for workers."""
    return {REPORTED_AS[process] for process in USED_BY[name.partition(".")[0]]}


def own(*sections: Section) -> dict[str, str]:
    """What the file and the environment of a process say, where that is not the default."""
    texts = {
        name: written(getattr(section, _FIELDS[name][0]))
        for section in sections
        for name in names_of(section.SECTION)
    }
    return {name: text for name, text in texts.items() if text != default_of(name)}


def value_of(name: str, kept: Mapping[str, str], own_value: str) -> str:
    """Return what an operator has set, as text; `own_value` if that is nothing, or not accepted by this release."""
    try:
        return written(read(name, kept[name])) if name in kept else own_value
    except SettingsError:
        return own_value


def contradictions(values: Mapping[str, str]) -> dict[str, str]:
    """Check all settings together; return the reason for each that contradicts another.

    Args:
        values: by name what would hold; a name that is left out has its default.
    """
    found = {}
    for smaller, larger, reason in _ORDERED:
        texts = [values.get(name, default_of(name)) for name in (smaller, larger)]
        if read(smaller, texts[0]) > read(larger, texts[1]):
            for name in (smaller, larger):
                found[name] = f"{smaller} ({texts[0]}) must not exceed {larger} ({texts[1]}): {reason}"
    return found


_ORDERED = (
    (
        "store_consumer.batching_gap",
        "store_consumer.poll_interval",
        "Duly would poll less often than once in the interval",
    ),
    (
        "store_consumer.depth_horizon",
        "store_consumer.enqueue_timeout",
        "references would be sent again while they wait in a queue that is as deep as it may be",
    ),
)
"""The first must not exceed the second."""

_RESTARTED = {
    "frontend": "Frontends",
    "hsc": "HSCs",
    "store_consumer": "Store Consumers",
    "controller": "workers",
    "executor": "workers",
    "timing": "workers, for a shorter process_deadline before servers, and for a longer one after them",
}


def _why_not(name: str) -> str:
    """Say why a name cannot be changed while Duly runs, and what to do."""
    section = name.partition(".")[0]
    is_setting = section == Timing.SECTION and name.removeprefix("timing.") in Timing.model_fields
    if not is_setting and (meant := _meant(name)):
        return f"there is no setting {name!r} to be changed while Duly runs; do you mean {meant}?"
    if section in SECTIONS and "." in name:
        which = _RESTARTED.get(section, "the processes that read it")
        return (
            f"{name} cannot be changed while Duly runs: change it in duly.toml or the environment, and restart {which} "
            "(`duly config` lists all settings, `duly settings` those that need no restart)"
        )
    return (
        f"there is no setting {name!r} to be changed while Duly runs; `duly settings` lists them, and the others are read "
        "when a process starts (`duly config`)"
    )


def _meant(name: str) -> str:
    """Return the closest name, whether it was said with its section or without; empty: none is close."""
    by_part = {_FIELDS[full][0]: full for full in NAMES} | {full: full for full in NAMES}
    section = name.partition(".")[0]
    if "." in name and section in SECTIONS:  # what resembles it elsewhere is another setting
        by_part = {full: full for full in names_of(section)}
    close = difflib.get_close_matches(name, by_part, n=1, cutoff=_ALIKE)
    return by_part[close[0]] if close else ""


_ALIKE = 0.75
