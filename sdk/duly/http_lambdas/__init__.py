"""HTTP lambdas: an application of Duly's own that posts each task to its owner's URL.

`duly worker --http FILE.toml` runs it. Needs `pip install 'duly[http]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duly.callbacks.app import App


def application(file: str) -> App:
    """Return the application that a file describes. Raises RegistrationError, which says what to change in it."""
    from pathlib import Path

    from duly.errors import RegistrationError
    from duly.http_lambdas.definition import read_file

    try:
        from duly.http_lambdas.poster import make_app
    except ModuleNotFoundError as error:
        raise RegistrationError(f"HTTP lambdas need {error.name}: pip install 'duly[http]'") from None

    return make_app(read_file(Path(file)))
