"""The sign-in of a person at one installation: a file in the person's state folder, which nobody else reads."""

import fcntl
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import duly
from duly_cli.access.secret_file import secret_file

_LOCKED_WITHIN = 20.0
"""Seconds: the command that has the lock calls the provider twice, 5 s each at most."""
_LOOKS_EVERY = 0.05
_OTHERS = 0o077
"""The mode's bits of group and others."""


@dataclass(frozen=True, slots=True)
class StoredSignIn:
    """What `duly login` keeps."""

    address: str
    """Of the Frontend, as it was named: the tokens are sent to no other."""
    issuer: str
    client_id: str
    scopes: str
    id_token: str = field(repr=False)
    expires_at: int
    """When the ID token ends, in seconds since 1970."""
    refresh_token: str = field(repr=False)
    """Empty: there is none, or the provider has refused it."""


def folder() -> Path:
    """Return where sign-ins are kept: `$XDG_STATE_HOME/duly/sign-ins`, or the same in `~/.local/state`."""
    configured = os.environ.get("XDG_STATE_HOME", "")
    state = Path(configured) if configured.startswith("/") else Path.home() / ".local" / "state"
    return state / "duly" / "sign-ins"


def file_of(address: str) -> Path:
    """Return the file of an installation, which may not exist."""
    return folder() / f"{hashlib.sha256(address.encode()).hexdigest()[:32]}.json"


def read_sign_in(address: str, *, to_end_it: bool = False) -> StoredSignIn | None:
    """Return the sign-in at an installation; None: there is none.

    `to_end_it`: also one that others may have read. It must not be shown to anybody but the provider.

    Raises:
        CredentialsError: others may read or write the file, or it is something else.
    """
    try:
        file = file_of(address)
    except RuntimeError:  # there is no home folder
        return None
    try:
        with file.open("rb") as opened:
            _check_owner(file, os.fstat(opened.fileno()), any_mode=to_end_it)
            said = json.load(opened)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None  # such as the home of another user
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, duly.CredentialsError):
            raise
        raise duly.CredentialsError(
            f"{file} cannot be read ({type(error).__name__}): run `duly login`"
        ) from error
    texts = [name for name in StoredSignIn.__slots__ if name != "expires_at"]
    is_whole = (
        isinstance(said, dict)
        and said.keys() == {*StoredSignIn.__slots__}
        and all(isinstance(said[name], str) for name in texts)
        and isinstance(said["expires_at"], int)
        and said["address"] == address
    )
    if not is_whole:
        raise duly.CredentialsError(f"{file} is no sign-in at {address}: run `duly login`")
    return StoredSignIn(**said)


def _check_owner(file: Path, status: os.stat_result, *, any_mode: bool) -> None:
    if status.st_uid != os.geteuid():
        raise duly.CredentialsError(f"{file} belongs to another user: remove it, and run `duly login`")
    if not any_mode and stat.S_IMODE(status.st_mode) & _OTHERS:
        raise duly.CredentialsError(
            f"other users may read or write {file}, which has your sign-in: run `duly logout`, then `duly login`"
        )


def was_exposed(address: str) -> bool:
    """Return whether other users may have read the sign-in at an installation."""
    try:
        return bool(stat.S_IMODE(file_of(address).stat().st_mode) & _OTHERS)
    except OSError:
        return False


@contextmanager
def prepared(address: str) -> Iterator[Callable[[StoredSignIn], None]]:
    """Yield what writes the sign-in at an installation. Only under `locked`.

    The file is made ready before: a refresh token that cannot be stored is lost. Raises OSError if it cannot be written.
    """
    with secret_file(file_of(address)) as write:
        yield lambda sign_in: write(json.dumps(asdict(sign_in)))


def forget(address: str) -> None:
    """Remove the sign-in at an installation. Only under `locked`."""
    file = file_of(address)
    file.unlink(missing_ok=True)
    for left in file.parent.glob(f".{file.name}.*.new"):  # by a command that was killed
        left.unlink(missing_ok=True)


def addresses() -> list[str]:
    """Return the installations with a sign-in that can be read."""
    found = []
    for file in sorted(folder().glob("*.json")):
        with suppress(OSError, ValueError, TypeError, KeyError):
            found.append(str(json.loads(file.read_bytes())["address"]))
    return found


@contextmanager
def locked(address: str) -> Iterator[None]:
    """Let no other command change the sign-in at an installation meanwhile.

    Raises:
        CredentialsError: another command has it for too long, or the folder cannot be written.
    """
    file = file_of(address).with_suffix(".lock")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise duly.CredentialsError(f"{file.parent} cannot be written: {error.strerror}") from error
    try:
        give_up_at = time.monotonic() + _LOCKED_WITHIN
        while not _is_locked(descriptor):
            if time.monotonic() > give_up_at:
                raise duly.CredentialsError(
                    f"another command has locked {file} for {_LOCKED_WITHIN:.0f} s: try again"
                )
            time.sleep(_LOOKS_EVERY)
        yield
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
