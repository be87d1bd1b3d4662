"""The names of the settings' sections, and the error for a name that is unknown."""

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path

from duly_core.errors import SettingsError

SECTIONS = (
    "frontend", "store_consumer", "hsc", "controller", "executor", "console", "autoscaler",
    "timing", "queue", "store", "cells", "attachments", "rpc", "auth", "telemetry", "notifications", "slo",
)  # fmt: skip
"""All sections; a section's environment variables begin with its name."""

_NAMES = ("DULY_ADDRESS", "DULY_CONFIG")
"""Variables that belong to no section."""

_VERY_ALIKE = 0.85

_ALIKE = 0.65
"""`rcp` is taken for rpc, but `postgres` not for store: DULY_ variables of other programs are left alone."""


def refuse_unknown_sections(file: Path, names: Iterable[str]) -> None:
    """A section that is misspelt must not be taken for one that is not there.

    Raises:
        SettingsError: there is no such section; names the one that was meant, or all.
    """
    for name in names:
        if name not in SECTIONS:
            close = difflib.get_close_matches(name.replace("-", "_"), SECTIONS, n=1, cutoff=_ALIKE)
            remedy = f"; do you mean [{close[0]}]?" if close else f": there are {', '.join(SECTIONS)}"
            raise SettingsError(f"{file}: there is no section [{name}]{remedy}")


def misspelt_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that look like a setting's, in an unknown section; for each, how its name should begin.

    Only what resembles a section is told: programs that have to do with Duly have variables of their own.
    """
    told = {}
    for variable in sorted(environment):
        words = _words(variable)
        if not variable.startswith("DULY_") or _section_of(words):
            continue
        for length in (2, 1):
            name = "_".join(words[:length])
            close = difflib.get_close_matches(name, SECTIONS, n=1, cutoff=_ALIKE)
            if len(words) > length and close:
                told[variable] = f"DULY_{close[0]}_".upper()
                break
    return told


def misspelt_name(environment: Mapping[str, str]) -> tuple[str, str] | None:
    """Return a variable that is close to one of those without a section, and the one that was meant; None: there is none."""
    for variable in sorted(environment):
        if variable.startswith("DULY_") and variable not in _NAMES and not _section_of(_words(variable)):
            close = difflib.get_close_matches(variable, _NAMES, n=1, cutoff=_VERY_ALIKE)
            if close:
                return variable, close[0]
    return None


def _words(variable: str) -> list[str]:
    return variable.removeprefix("DULY_").lower().split("_")


def _section_of(words: list[str]) -> bool:
    return any(words[: len(name.split("_"))] == name.split("_") for name in SECTIONS)
