"""Tells who runs the command, for Frontends that do not ask who calls."""

import getpass


def user_name() -> str:
    """Return the name of the user; empty: the system knows none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
