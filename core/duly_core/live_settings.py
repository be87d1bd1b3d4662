"""The settings that operators change while Duly runs: which there are, and what each may be.

They are settings like the others, with a default, a line in the file and an environment variable; what an operator
sets goes before those, in every process, until it is reset.
"""

import difflib
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar

from pydantic import Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from duly_core.errors import SettingsError
from duly_core.settings import Duration, Section, format_duration
from duly_core.settings_errors import in_plain_words

LONGEST_VALUE = 100
"""Characters; so long the store keeps them."""


class UnknownSettingError(SettingsError):
    """There is no such setting that can be changed while Duly runs."""


class LiveStoreConsumerSettings(Section):
    """The part of `[store_consumer]` that can be changed while it runs."""

    SECTION: ClassVar[str] = "store_consumer"

    poll_interval: Duration = Field(
        default=timedelta(seconds=2), ge=timedelta(milliseconds=10), le=timedelta(minutes=2)
    )
    """How often Duly looks for due and silent tasks, even if nothing wakes it."""
    exact: bool = True
    """Wakes at the next due time and on notifications. Off: polls at the interval only."""
    batching_gap: Duration = Field(default=timedelta(milliseconds=2), le=timedelta(seconds=10))
    """The shortest time between two polls."""
    batch: int = Field(default=2_000, ge=1, le=100_000)
    """With SQS: the most references that one poll sends to each queue."""
    enqueue_timeout: Duration = Field(
        default=timedelta(seconds=60), ge=timedelta(seconds=1), le=timedelta(days=1)
    )
    """With SQS: a reference that was not claimed after this time is sent again."""
    put_back_delay: Duration = Field(default=timedelta(seconds=5), le=timedelta(hours=1))
    """With SQS: references that could not be sent are sent again within this time."""
    reclaim_rate: float = Field(default=500, gt=0, le=1_000_000)
    """The most claims a second that one Store Consumer reclaims from silent Executors."""
    depth_horizon: Duration = Field(default=timedelta(seconds=5), le=timedelta(hours=1))
    """With SQS: each queue holds about as many references as workers claim in this time. The rest waits in the store."""
    min_depth: int = Field(default=100, ge=1, le=1_000_000)
    """With SQS: references that a queue may hold in any case, however slow its workers are."""
    max_depth: int = Field(default=20_000, ge=1, le=1_000_000)
    """With SQS: the most references in one queue, however fast its workers are. min_depth takes precedence."""


_FIELDS: Mapping[str, tuple[str, FieldInfo]] = {
    f"{LiveStoreConsumerSettings.SECTION}.{field}": (field, info)
    for field, info in LiveStoreConsumerSettings.model_fields.items()
}
_READERS: Mapping[str, TypeAdapter[Any]] = {
    name: TypeAdapter(Annotated[info.annotation, info])  # type: ignore[arg-type]  # no type checker follows
    for name, (_, info) in _FIELDS.items()
}

NAMES = tuple(_FIELDS)
"""Each with its section: `store_consumer.poll_interval`."""


def field_of(name: str) -> str:
    """The name of a setting within its section.

    Raises:
        UnknownSettingError: no setting has this name.
    """
    if len(name) > LONGEST_VALUE:  # to look for a name that resembles it would take long
        raise UnknownSettingError(f"there is no setting with a name of {len(name):,} characters")
    if name not in _FIELDS:
        raise UnknownSettingError(f"there is no setting {name!r} to be changed while Duly runs{_meant(name)}")
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


def own(settings: LiveStoreConsumerSettings) -> dict[str, str]:
    """What the file and the environment of a process say, where that is not the default."""
    texts = {name: written(getattr(settings, field)) for name, (field, _) in _FIELDS.items()}
    return {name: text for name, text in texts.items() if text != default_of(name)}


def _meant(name: str) -> str:
    """The closest name, whether it was said with its section or without."""
    by_part = {_FIELDS[full][0]: full for full in NAMES} | {full: full for full in NAMES}
    close = difflib.get_close_matches(name, by_part, n=1)
    if close:
        return f"; do you mean {by_part[close[0]]}?"
    return "; `duly settings` lists them, and the others are read when a process starts (`duly config`)"
