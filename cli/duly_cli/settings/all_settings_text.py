"""The text of `duly config`: every setting, from the classes that define them."""

import json
import os
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from pydantic.fields import FieldInfo

from duly_cli.output.table import columns
from duly_core.config.settings import Section, config_file, read_config
from duly_core.config.timing import PROFILES, Timing
from duly_core.live_settings.definitions import written
from duly_local.all_settings import sections

# In `host=... password=...` (where a value may be quoted, and the quote escaped) and in `?password=...&...`.
_PASSWORD_PARAMETER = re.compile(
    r"""(\b(?:ssl)?password\s*=\s*)(?:'(?:[^'\\]|\\.)*'?|(?:[^\s&\\]|\\.)+)""", re.IGNORECASE
)


def meaning_of(field: FieldInfo) -> str:
    """Return what is written under a setting."""
    return " ".join((field.description or "").split())


def shown(value: Any) -> str:
    """A value as it is written in the environment; a password in an address is left out."""
    text = _PASSWORD_PARAMETER.sub(r"\1***", written(value))
    if "://" in text and "@" in text:
        scheme, _, rest = text.partition("://")
        user, _, host = rest.rpartition("@")
        return f"{scheme}://{user.partition(':')[0]}{':***' if ':' in user else ''}@{host}"
    return text


def example_toml() -> str:
    """A `duly.toml` with every setting at its default, commented out, and its meaning."""
    lines = [
        "# Every setting of Duly at its default; written by `duly config --toml`.",
        "# Copy to duly.toml in the working folder, or name the file in DULY_CONFIG. The environment goes before the",
        "# file: DULY_<SECTION>_<KEY>. Durations have a unit: 250ms, 2s, 1m30s, 7d.",
    ]
    for section in sections():
        lines += ["", f"[{section.SECTION}]"]
        for name, field in section.model_fields.items():
            lines += textwrap.wrap(meaning_of(field), 110, initial_indent="# ", subsequent_indent="# ")
            lines.append(f"#{name} = {_as_toml(_default(section, name, field))}")
    return "\n".join(lines) + "\n"


def _default(section: type[Section], name: str, field: FieldInfo) -> object:
    if section is Timing:  # the profile fills these in
        return PROFILES["production"].get(name, field.default)
    return field.default


def _as_toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_as_toml, value))}]"
    if value == {}:  # tables with values have lines of their own
        return "{}"
    return json.dumps(written(value))


def settings_lines(only: str = "") -> Iterator[str]:
    """Yield a line for each setting; with `only` of those whose name, variable or meaning has this text.

    Raises:
        SettingsError: a value is unusable, or the file is.
    """
    path = config_file()
    toml = read_config()
    yield f"settings (file: {path}{'' if path.exists() else ', not there'})"
    rows = []
    for section in sections():
        settings = section.load()
        for name, field in section.model_fields.items():
            variable = f"DULY_{section.SECTION}_{name}".upper()
            source = (
                "environment"
                if variable in os.environ
                else "file"
                if name in toml.get(section.SECTION, {})
                else "default"
            )
            meaning = meaning_of(field)
            searched = f"{section.SECTION}.{name} {variable} {meaning}".lower()
            if only.lower() in searched:
                rows.append((variable, shown(getattr(settings, name)), source, meaning))
    if rows:
        yield from columns(("ENVIRONMENT VARIABLE", "VALUE", "SET BY", "MEANING"), rows)
    else:
        yield f"no setting has {only!r} in its name or meaning; `duly config` without it shows all"
