"""Keeps the log level of a service at what its configuration and operators say."""

from collections.abc import Mapping

import structlog

from duly_core.config.live_sections import INHERIT, LiveTelemetrySettings
from duly_core.config.settings import Section
from duly_core.live_settings import definitions as live_settings
from duly_core.process.log_levels import log_levels

log = structlog.get_logger()


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
