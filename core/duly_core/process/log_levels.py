"""The lowest level that each service of this process logs, which operators may change while it runs."""

import logging
from typing import Any

import structlog
from structlog.typing import EventDict

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
