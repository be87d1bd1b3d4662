"""The settings that hold now: the process's own, and over them what operators have set."""

from collections.abc import Mapping
from typing import Generic, TypeVar

import structlog

from duly_core.config.settings import Section
from duly_core.errors import SettingsError
from duly_core.live_settings import definitions as live_settings

log = structlog.get_logger()

Live = TypeVar("Live", bound=Section)


class EffectiveSettings(Generic[Live]):
    """Takes what the store says operators have set of one section; a value that this release does not accept is passed over."""

    def __init__(self, own: Live) -> None:
        self._own = own
        self._kept: Mapping[str, str] = {}
        self.now = own

    def take(self, kept: Mapping[str, str]) -> bool:
        """Go by those of this section from now on; True if anything is another than before."""
        kept = {name: text for name, text in kept.items() if name.startswith(f"{self._own.SECTION}.")}
        if kept == self._kept:
            return False
        values = {}
        for name, text in kept.items():
            try:
                values[live_settings.field_of(name)] = live_settings.read(name, text)
            except SettingsError as error:
                if self._kept.get(name) != text:
                    log.warning(
                        "live setting ignored; `duly settings` corrects it",
                        setting=name,
                        value=text,
                        reason=str(error),
                    )
        self._kept = kept
        before, self.now = self.now, self._own.model_copy(update=values)
        for name in live_settings.names_of(self._own.SECTION):
            field = live_settings.field_of(name)
            was, is_now = getattr(before, field), getattr(self.now, field)
            if was != is_now:
                source = "an operator" if field in values else "this process's own settings"
                log.info(
                    "setting changed",
                    setting=name,
                    before=live_settings.written(was),
                    now=live_settings.written(is_now),
                    by=source,
                )
        return before != self.now
