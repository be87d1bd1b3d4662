"""Tests of applications: the real services and a worker in the test's process, on a Postgres whose clock is stepped.

The pytest plugin (`plugin.py`) has the fixtures: docs/testing.md. The names here are for annotations of tests:

    from duly_local.testing import DulyClock, DulyWorker

Importing this package imports nothing else: pytest does so in each run, also of those who do not test with Duly.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duly_local.testing.clock import DulyClock
    from duly_local.testing.errors import DulyTestError
    from duly_local.testing.worker import DulyWorker, Run

__all__ = ["DulyClock", "DulyTestError", "DulyWorker", "Run"]

_FROM = {"DulyClock": "clock", "DulyTestError": "errors", "DulyWorker": "worker", "Run": "worker"}


def __getattr__(name: str) -> Any:
    """Load what is named."""
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FROM[name]}"), name)
