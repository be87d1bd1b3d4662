"""How commands that reach Postgres end after an error: docs/reference/commands.md says what each code means."""

import os

REFUSED = 1


def exit_code_of(error: Exception) -> int:
    """Return the exit code for an error: 69 if Postgres does not answer, 78 if a setting is unusable, otherwise 1."""
    from duly_core.errors import SettingsError, StoreUnavailableError

    if isinstance(error, SettingsError):
        return os.EX_CONFIG
    return os.EX_UNAVAILABLE if isinstance(error, StoreUnavailableError) else REFUSED
