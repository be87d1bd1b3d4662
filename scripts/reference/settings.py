"""The page of settings, from the classes that define them."""

import typing
from datetime import timedelta
from typing import Any, Literal

import annotated_types
from pydantic.fields import FieldInfo

from duly_cli.settings.all_settings_text import meaning_of, sections
from duly_core.config.settings import Section, format_duration
from duly_core.config.timing import PROFILES, Timing
from duly_core.live_settings.definitions import NAMES
from scripts.reference.markdown import code, page, sentence, table

_INTRODUCTION = """
A setting has a section and a key. Duly reads it from the environment (`DULY_<SECTION>_<KEY>`), then from the file
(`duly.toml` in the working folder, or the file that `DULY_CONFIG` names), then takes the default.
[Settings](../operators/settings.md) explains how to change one, and which ones matter first.

Durations have a unit: `250ms`, `2s`, `1m30s`, `7d`. A setting marked *live* can also be changed without a restart,
with `duly settings set`.
"""


def text() -> str:
    """Return the page."""
    return page("Settings", _INTRODUCTION, *(_part(section) for section in sections()))


def _part(section: type[Section]) -> str:
    rows = [
        (
            code(name) + (" *live*" if f"{section.SECTION}.{name}" in NAMES else ""),
            _default(section, name, field),
            _allowed(field),
            sentence(meaning_of(field)),
        )
        for name, field in section.model_fields.items()
    ]
    about = (section.__doc__ or "").split("\n\n")[0].removeprefix(f"`[{section.SECTION}]`").strip(":. \n")
    introduction = f"{sentence(about[0].upper() + about[1:])}\n\n" if about else ""
    return f"## {section.SECTION}\n\n{introduction}" + table(("key", "default", "allowed", "meaning"), rows)


def _default(section: type[Section], name: str, field: FieldInfo) -> str:
    if section is Timing and name in PROFILES["production"]:
        values = (code(_shown(PROFILES[profile][name])) for profile in ("production", "embedded"))
        return "{}; embedded: {}".format(*values)
    return code(_shown(field.default)) or "empty"


def _shown(value: Any) -> str:
    if isinstance(value, timedelta):
        return format_duration(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _allowed(field: FieldInfo) -> str:
    if typing.get_origin(field.annotation) is Literal:
        return ", ".join(code(str(choice)) for choice in typing.get_args(field.annotation))
    words = []
    for limit in field.metadata:
        match limit:
            case annotated_types.Ge(ge=least):
                words.append(f"at least {_shown(least)}")
            case annotated_types.Gt(gt=least):
                words.append(f"more than {_shown(least)}")
            case annotated_types.Le(le=most):
                words.append(f"at most {_shown(most)}")
            case annotated_types.Lt(lt=most):
                words.append(f"less than {_shown(most)}")
    return ", ".join(words)
