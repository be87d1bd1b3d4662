"""The lowest level that each service of this process logs, which operators may change while it runs."""

import logging
from collections.abc import Mapping
from typing import Any

import structlog
from structlog.typing import EventDict

from duly_core import live_settings
from duly_core.live_sections import INHERIT, LiveTelemetrySettings
from duly_core.settings import Section

log = structlog.get_logger()
_NUMBERS = {name.lower(): number for name, number in logging.getLevelNamesMapping().items()}


class LogLevels:
    """By service: several services may share a process."""

    def __init__(self) -> None:
        self._default = logging.INFO
        self._levels: dict[str | None, int] = {}

    def default(self, level: str) -> None:
        """Use this level for services that have none of their own."""
        self._default = _NUMBERS[level]

    def set(self, service: str, level: str) -> bool:
        """Use this level for a service; True if it had another."""
        before = self._levels.get(service, self._default)
        self._levels[service] = _NUMBERS[level]
        return before != _NUMBERS[level]

    def drop_below(self, _logger: Any, method: str, event: EventDict) -> EventDict:
        """Drop an event below its service's level; a processor of structlog, after merge_contextvars."""
        level = self._levels.get(event.get("service"), self._default)
        if _NUMBERS.get(method, logging.ERROR) < level:
            raise structlog.DropEvent
        return event


log_levels = LogLevels()
"""Those of this process."""


class LogLevelFollower:
    """Keeps a service's level at what its configuration and operators say."""

    def __init__(self, service: str, section: Section, telemetry: LiveTelemetrySettings) -> None:
        """Begin with the configuration; `section` is the service's own, with `log_level`."""
        self._service = service
        own = {"telemetry.log_level": telemetry.log_level} | live_settings.own(section)
        self._common = own["telemetry.log_level"]
        self._name = f"{section.SECTION}.log_level"
        self._own = own.get(self._name, INHERIT)
        self.take({})

    def take(self, kept: Mapping[str, str]) -> None:
        """Go by what operators have set."""
        level = live_settings.value_of(self._name, kept, self._own)
        if level == INHERIT:
            level = live_settings.value_of("telemetry.log_level", kept, self._common)
        if log_levels.set(self._service, level):
            log.info("log level changed", log_level=level)
