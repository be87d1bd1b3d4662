"""The keys that sign JWTs, from a file that is read again when it changes."""

import json
import threading
import time
from pathlib import Path

import jwt
import structlog

from duly_core.errors import SettingsError

log = structlog.get_logger()

_LOOK_EVERY_S = 1.0


class FileKeys:
    """The keys of a JSON Web Key Set. Any threads may share it."""

    def __init__(self, path: Path) -> None:
        """Read them.

        Raises:
            SettingsError: the file cannot be read, or is no key set.
        """
        self._path = path
        self._stamp = self._failed = self._look()
        try:
            self._keys = self._read()
        except (OSError, ValueError, jwt.PyJWTError) as error:
            raise SettingsError(f"auth.jwks: {path} is no JSON Web Key Set: {error}") from error
        self._looking = threading.Lock()
        self._look_again_at = time.monotonic() + _LOOK_EVERY_S

    def find(self, token: str) -> jwt.PyJWK:
        """Return the key that a token says it is signed by.

        Raises:
            PyJWTError: the file has no such key.
        """
        self._refresh()
        key_id = jwt.get_unverified_header(token).get("kid")
        key = self._keys.get(key_id)
        if key is None:
            raise jwt.InvalidKeyError(f"the key set has no key {key_id!r}")
        return key

    def _refresh(self) -> None:
        """Look at the file, once a second at most. While it cannot be read, the keys before stay in force."""
        if time.monotonic() < self._look_again_at or not self._looking.acquire(blocking=False):
            return
        try:
            self._look_again_at = time.monotonic() + _LOOK_EVERY_S
            seen = self._look()
            if seen == self._stamp:
                return
            try:
                self._keys = self._read()
                self._stamp = seen
                log.info("keys of JWTs read again", file=str(self._path), keys=len(self._keys))
            except (
                OSError,
                ValueError,
                jwt.PyJWTError,
            ) as error:  # perhaps half written: the next look tries again
                if seen != self._failed:
                    self._failed = seen
                    log.warning("keys of JWTs not read again", file=str(self._path), error=str(error))
        finally:
            self._looking.release()

    def _look(self) -> tuple[int, int, int] | None:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _read(self) -> dict[str | None, jwt.PyJWK]:
        return {
            key.key_id: key for key in jwt.PyJWKSet.from_dict(json.loads(self._path.read_text("utf-8"))).keys
        }
