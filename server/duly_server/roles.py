"""The roles of a server process: their names, and how each is built."""

import difflib

from duly_core.errors import SettingsError
from duly_core.service import Serve
from duly_core.store.local_notifications import LocalNotifications
from duly_core.store.start import Migration

ROLES = ("frontend", "store-consumer", "hsc")
"""All roles, in the order in which they are started."""


def parse_roles(text: str) -> list[str]:
    """Return the roles that a list with commas names, each once.

    Raises:
        SettingsError: a name is not a role, or no role is given.
    """
    named = [name.strip() for name in text.split(",") if name.strip()]
    for name in named:
        if name not in ROLES:
            close = difflib.get_close_matches(name, ROLES, n=1)
            note_due = f"; do you mean {close[0]}?" if close else ""
            raise SettingsError(
                f"there is no role {name!r} (--roles): there are {', '.join(ROLES)}{note_due}"
            )
    if not named:
        raise SettingsError(f"--roles names no role: there are {', '.join(ROLES)}")
    return [role for role in ROLES if role in named]


def build_role(name: str, notifications: LocalNotifications, migration: Migration) -> Serve:
    """Return what runs a role; only the picked roles are imported."""
    if name == "frontend":
        from duly_frontend.__main__ import build as build_frontend

        return build_frontend(notifications, migration)
    if name == "store-consumer":
        from duly_store_consumer.__main__ import build as build_store_consumer

        return build_store_consumer(notifications, migration)
    from duly_hsc.__main__ import build as build_hsc

    return build_hsc(notifications, migration)
