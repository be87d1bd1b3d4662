"""Finds the application that "module:attribute" names."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from duly.callbacks.app import App
from duly.callbacks.import_errors import owners_lines
from duly.errors import AppImportError, DulyError, describe

_DEFAULT_ATTRIBUTE = "app"
_MAKER = "application"


def load_app(target: str) -> App:
    """Import and return the App that `target` names: "mail.tasks:app"; without an attribute, `app`.

    "duly.programs:{...}", with JSON after the colon, calls the function `application` of that module with these arguments.
    The working directory is importable, as for `python -m`. Raises AppImportError, which says what
    failed, in which of the owner's lines, and how to fix it; what the import raised is its `__context__`.
    """
    module_name, _, attribute = target.partition(":")
    if not module_name or module_name.endswith(".py") or "/" in module_name:
        raise AppImportError(f'{target!r} is not a module: write it as in an import, "package.module:app"')
    app: Any = _import(module_name)
    if attribute.startswith("{"):
        return _made(app, attribute)
    for name in (attribute or _DEFAULT_ATTRIBUTE).split("."):
        try:
            app = getattr(app, name)
        except AttributeError:
            raise AppImportError(
                f'{module_name!r} has no {name!r}: name the duly.App, as in "{module_name}:{_candidate(app)}"'
            ) from None
    if not isinstance(app, App):
        raise AppImportError(
            f"{target!r} is a {type(app).__name__}, not a duly.App: name the object made with duly.App(...)"
        )
    return app


def _made(module: Any, arguments: str) -> App:
    maker = getattr(module, _MAKER, None)
    try:
        options = json.loads(arguments)
    except ValueError as error:
        raise AppImportError(f"what follows {module.__name__}: is not JSON: {error}") from None
    if maker is None:
        raise AppImportError(f"{module.__name__!r} has no function {_MAKER!r} that makes applications")
    try:
        app = maker(**options)
    except (DulyError, TypeError, ValueError, OSError) as error:
        raise AppImportError(f"{module.__name__}: {error}") from error
    if not isinstance(app, App):
        raise AppImportError(f"{module.__name__}.{_MAKER} makes a {type(app).__name__}, not a duly.App")
    return app


def _import(module_name: str) -> Any:
    directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise AppImportError(
                f"there is no module {missing!r}: run from the directory that contains it, or install it"
            ) from None
        problem = f"{module_name!r} imports {missing!r}, which is not installed"
        raise AppImportError(_with_lines(problem, error)) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever it is, the message tells it)
        problem = f"importing {module_name!r} failed: {describe(error)}"
        advice = f'for the whole traceback: python -c "import {module_name}"'
        raise AppImportError(f"{_with_lines(problem, error)}\n{advice}") from None


def _with_lines(problem: str, error: BaseException) -> str:
    return "\n  ".join([problem, *owners_lines(error)])


def _candidate(module: object) -> str:
    """Return the name of an App that the module does have, to suggest it."""
    names = (name for name, value in vars(module).items() if isinstance(value, App))
    return next(names, _DEFAULT_ATTRIBUTE)
