"""Checks who else can use a file of secrets."""

import os
from pathlib import Path

from duly_core.errors import SettingsError

_MOUNTED = "/run/secrets"
"""Where Docker and Podman mount secrets."""


def check_mode(setting: str, path: str) -> None:
    """Check that other users cannot read or write a file of secrets.

    Secrets that systemd or a container's engine mounts belong to another user, who decides who may read them.

    Raises:
        SettingsError: the file is ours and others may read it, or others may write it.
        OSError: there is no such file.
    """
    found = Path(path).stat()
    # some engines show what they mount in a container as its user's own
    is_own = found.st_uid == os.geteuid() and not Path(path).is_relative_to(_MOUNTED)
    if found.st_mode & (0o077 if is_own else 0o022):
        raise SettingsError(
            f"{setting}: others may {'read' if is_own else 'write'} {path} (its mode is "
            f"{found.st_mode & 0o777:o}): chmod {'600' if is_own else 'go-w'} {path}"
        )
