"""The roles of a server process: their names, and how each is built."""

import difflib
import importlib

from duly_core.errors import SettingsError
from duly_core.postgres.local_notifications import LocalNotifications
from duly_core.postgres.start import Migration
from duly_core.process.service import Serve

ROLES = ("frontend", "store-consumer", "hsc")
"""The roles of a server, in the order in which they are started."""

CONSOLE = "console"
"""A role that a server has only if it is named."""

_KNOWN = (*ROLES, CONSOLE)


def parse_roles(text: str) -> list[str]:
    """Return the roles that a list with commas names, each once.

    Raises:
        SettingsError: a name is not a role, or no role is given.
    """
    named = [name.strip() for name in text.split(",") if name.strip()]
    for name in named:
        if name not in _KNOWN:
            close = difflib.get_close_matches(name, _KNOWN, n=1)
            note_due = f"; do you mean {close[0]}?" if close else ""
            raise SettingsError(
                f"there is no role {name!r} (--roles): there are {', '.join(_KNOWN)}{note_due}"
            )
    if not named:
        raise SettingsError(f"--roles names no role: there are {', '.join(_KNOWN)}")
    return [role for role in _KNOWN if role in named]


def build_role(name: str, notifications: LocalNotifications, migration: Migration) -> Serve:
    """Return what runs a role; only the picked roles are imported."""
    module = importlib.import_module(f"duly_{name.replace('-', '_')}.__main__")
    serve: Serve = module.build() if name == CONSOLE else module.build(notifications, migration)
    return serve
