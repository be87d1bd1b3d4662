"""Command lambdas: an application of Duly's own that runs programs, each in a folder of its own, within limits.

`duly worker --commands FILE.toml` runs it, on Linux.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duly.callbacks.app import App


def application(file: str) -> App:
    """Return the application that a file describes. Raises RegistrationError, which says what to change in it."""
    import sys
    from pathlib import Path

    from duly.command_lambdas.definition import read_file
    from duly.errors import RegistrationError

    if sys.platform != "linux":
        raise RegistrationError("command lambdas run on Linux only")
    from duly.command_lambdas.runner import make_app

    return make_app(read_file(Path(file)))
