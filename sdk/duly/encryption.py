"""Encrypts payloads, results and checkpoints with AES-256-GCM. Needs `pip install 'duly[encryption]'`.

Example:
    codec = duly.encryption.AesGcm(keys={"2026-11": key}, current="2026-11")
    client = duly.Client(codec=codec)
    app = duly.App(codec=codec)
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from duly.callbacks.codec import HEAD, head_of, key_id_of
from duly.errors import DecryptionError

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
except ImportError as error:
    raise ImportError(
        "duly.encryption needs the package cryptography: pip install 'duly[encryption]'"
    ) from error

_KEY_BYTES = 32
_SALT_BYTES = 12
_NONCE_BYTES = 12
_TAG_BYTES = 16
_KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class _Key(NamedTuple):
    head: bytes
    for_nonces: bytes
    for_messages: bytes


class AesGcm:
    """Encrypts with one key, decrypts with several; threads may share it.

    Each message has a key of its own, derived from the named key and a salt. Salt and nonce are an HMAC of the content,
    of what it is bound to, and of its identity: a repeated call sends the same bytes, and two tasks with the same
    payload do not.
    """

    def __init__(self, keys: Mapping[str, bytes], current: str) -> None:
        """Take keys of 32 bytes by their names, and the name of the one that encrypts.

        Raises ValueError for a key of another length, a name that is not 1 to 64 of A-Z, a-z, 0-9, '.', '_', '-', and a
        `current` that names no key.
        """
        for key_id, key in keys.items():
            if _KEY_ID.fullmatch(key_id) is None:
                raise ValueError(
                    f"{key_id!r} is not the name of a key: 1 to 64 of A-Z, a-z, 0-9, '.', '_', '-'"
                )
            if len(key) != _KEY_BYTES:
                raise ValueError(f"the key {key_id!r} must be {_KEY_BYTES} bytes, such as os.urandom(32)")
        if current not in keys:
            raise ValueError(f"current: there is no key {current!r}; there are {', '.join(keys) or 'none'}")
        self._keys = {
            key_id: _Key(head_of(key_id), _hmac(key, b"duly 1 nonce"), _hmac(key, b"duly 1 message"))
            for key_id, key in keys.items()
        }
        self.current = current
        """The name of the key that encrypts."""

    def __repr__(self) -> str:
        return f"AesGcm(keys={list(self._keys)}, current={self.current!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an AesGcm holds keys, and is not pickled: make one where it is used")

    def encrypt(self, data: bytes, bound_to: bytes, identity: bytes) -> bytes:
        """Return `data` encrypted under the current key. See `duly.callbacks.codec.Codec`."""
        key = self._keys[self.current]
        told = b"".join(len(part).to_bytes(8, "big") + part for part in (bound_to, identity, data))
        unique = _hmac(key.for_nonces, told)[: _SALT_BYTES + _NONCE_BYTES]
        salt, nonce = unique[:_SALT_BYTES], unique[_SALT_BYTES:]
        cipher = AESGCM(_hmac(key.for_messages, salt))
        return key.head + unique + cipher.encrypt(nonce, data, key.head + bound_to)

    def decrypt(self, data: bytes, bound_to: bytes) -> bytes:
        """Return what was encrypted.

        Raises DecryptionError: there is no key of that name, or the bytes were changed, moved to another lambda or
        task, or encrypted with another key of the same name.
        """
        key_id = key_id_of(data)
        key = self._keys.get(key_id)
        if key is None:
            raise DecryptionError(
                f"encrypted (key {key_id}): there is no such key here; there are {', '.join(self._keys)}",
                key_id,
            )
        salt_at = len(key.head)
        nonce_at = salt_at + _SALT_BYTES
        content_at = nonce_at + _NONCE_BYTES
        if not data.startswith(HEAD) or len(data) <= content_at + _TAG_BYTES:
            raise DecryptionError(f"encrypted (key {key_id}): the bytes are cut off", key_id)
        cipher = AESGCM(_hmac(key.for_messages, data[salt_at:nonce_at]))
        try:
            return cipher.decrypt(data[nonce_at:content_at], data[content_at:], key.head + bound_to)
        except InvalidTag:
            raise DecryptionError(
                f"encrypted (key {key_id}): the bytes were changed or belong elsewhere, or this is another key",
                key_id,
            ) from None


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")
