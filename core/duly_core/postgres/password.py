"""The password for Postgres, from a file or a command: read for each new connection, so it may change meanwhile."""

import asyncio
import os
import subprocess
from pathlib import Path

from psycopg.conninfo import make_conninfo

from duly_core.errors import StoreUnavailableError
from duly_core.postgres.dsn import in_schema
from duly_core.postgres.settings import StoreSettings, direct

_LONGEST = 64 * 1024


def read_password(settings: StoreSettings) -> str | None:
    """Return the password that a file or a command gives; None: neither is set, the address may have one.

    Raises:
        StoreUnavailableError: the file or the command gave none; says why, without what the command printed.
    """
    if settings.password_file:
        return _from_file(Path(settings.password_file))
    if settings.password_command:
        return _from_command(settings)
    return None


async def read_password_in_thread(settings: StoreSettings) -> str | None:
    """Return what `read_password` does, without holding up the event loop."""
    if not settings.password_file and not settings.password_command:
        return None
    return await asyncio.to_thread(read_password, settings)


def full_address(settings: StoreSettings) -> str:
    """Return the store's address with its password and its schema, for programs that connect once.

    Raises:
        StoreUnavailableError: the password cannot be read.
    """
    password = read_password(settings)
    address = settings.dsn if password is None else make_conninfo(settings.dsn, password=password)
    return in_schema(address, settings.schema_name)


def admin_address(dsn: str | None) -> str:
    """Return the address for a command: `dsn` if it is given, else that of `[store]` past the pooler; in the schema of `[store]`.

    Raises:
        StoreUnavailableError: the password cannot be read.
        SettingsError: a setting is unusable.
    """
    settings = StoreSettings.load(dsn=dsn)
    return in_schema(dsn, settings.schema_name) if dsn else full_address(direct(settings))


def _from_file(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            password = file.read(_LONGEST).removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise StoreUnavailableError(f"store.password_file: {path} cannot be read: {reason}") from error
    if not password:
        raise StoreUnavailableError(f"store.password_file: {path} is empty")
    return password


def _from_command(settings: StoreSettings) -> str:
    program, *_ = command = [*settings.password_command]
    limit = settings.password_timeout.total_seconds()
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise StoreUnavailableError(
            f"store.password_command: {program} took longer than {limit:g} s (store.password_timeout)"
        ) from error
    except OSError as error:
        raise StoreUnavailableError(
            f"store.password_command: {program} cannot be started: {os.strerror(error.errno or 0)}"
        ) from error
    if done.returncode != 0:
        raise StoreUnavailableError(f"store.password_command: {program} exited with {done.returncode}")
    password = done.stdout[:_LONGEST].decode("utf-8", "replace").removesuffix("\n")
    if not password:
        raise StoreUnavailableError(f"store.password_command: {program} printed nothing")
    return password
