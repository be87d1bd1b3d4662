"""Where the services of a test log: to the logger `duly.server` of Python, from WARNING on. A test's own output is its own."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog

NAME = "duly.server"
_PACKAGES = ("duly_core", "duly_frontend", "duly_hsc", "duly_store_consumer", "duly_server")


@contextmanager
def to_standard_logging() -> Iterator[None]:
    """Replace the loggers of the services' modules. Those of the test's own modules, and the configuration, stay as they are."""
    logger = logging.getLogger(NAME)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)
    ours = structlog.wrap_logger(
        logger,
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.render_to_log_kwargs],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    found = [*_module_loggers()]
    for module, name, _ in found:
        setattr(module, name, ours)
    try:
        yield
    finally:
        for module, name, logger_before in found:
            setattr(module, name, logger_before)


def _module_loggers() -> Iterator[tuple[Any, str, Any]]:
    kind = type(structlog.get_logger())
    for module in [*sys.modules.values()]:
        if getattr(module, "__name__", "").partition(".")[0] not in _PACKAGES:
            continue
        for name, value in [*vars(module).items()]:
            if type(value) is kind:
                yield module, name, value
