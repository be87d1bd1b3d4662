"""Where payloads are encrypted and decrypted: between Python values and the wire. Free of gRPC.

Encrypted bytes begin with D0 01, which no JSON does, then one byte with the length of the key's name, and the name.
Duly's servers read only this head.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from duly.callbacks.payload import decode
from duly.errors import DecryptionError, PayloadError
from duly_wire import encrypted_events
from duly_wire.v1 import task_pb2

HEAD = b"\xd0\x01"
"""D0 announces a second byte of UTF-8, and 01 is none."""
_RESULT = b"result\0"


class Codec(Protocol):
    """Encrypts payloads, results, checkpoints and events; `duly.encryption.AesGcm` is one."""

    def encrypt(self, data: bytes, bound_to: bytes, identity: bytes) -> bytes:
        """Return `data` encrypted, behind the head that `duly.callbacks.codec` describes.

        The same arguments must give the same bytes: a call that is repeated after a lost answer is compared with the
        first. `bound_to`: only `decrypt` with the same value may succeed. `identity`: of the task or time table.
        """

    def decrypt(self, data: bytes, bound_to: bytes) -> bytes:
        """Return what was encrypted. Raises DecryptionError."""


@dataclass(frozen=True, slots=True, repr=False)
class EncryptedPayload:
    """Stands for a payload that this client cannot decrypt."""

    key_id: str

    def __repr__(self) -> str:
        return f"encrypted (key {self.key_id})"


def payload_of(lambda_name: str) -> bytes:
    """Return what a payload is bound to."""
    return b"payload\0" + lambda_name.partition("@")[0].encode()  # of any version, in any domain


def result_of(task_id: str | bytes) -> bytes:
    """Return what a result is bound to; `task_id` is in text form, or its 16 bytes."""
    return _RESULT + _id_bytes(task_id)


def checkpoint_of(task_id: str | bytes) -> bytes:
    """Return what a checkpoint is bound to; `task_id` is in text form, or its 16 bytes."""
    return b"checkpoint\0" + _id_bytes(task_id)


def event_of(namespace: str, key: str) -> bytes:
    """Return what the value of an event is bound to."""
    return b"event\0" + namespace.encode() + b"/" + key.encode()


def protect(
    codec: Codec | None,
    encoded: tuple[bytes, task_pb2.Encoding.ValueType],
    bound_to: bytes,
    identity: str,
) -> tuple[bytes, task_pb2.Encoding.ValueType]:
    """Return bytes and their encoding as they are sent. None has no bytes, and is not encrypted."""
    data, encoding = encoded
    if codec is None or not data or encoding == task_pb2.ENCODING_ENCRYPTED:
        return encoded
    return codec.encrypt(bytes([encoding]) + data, bound_to, identity.encode()), task_pb2.ENCODING_ENCRYPTED


def reveal(codec: Codec | None, data: bytes, encoding: int, bound_to: bytes) -> tuple[bytes, int]:
    """Return bytes and their encoding as they were before `protect`. Raises DecryptionError."""
    if encoding != task_pb2.ENCODING_ENCRYPTED:
        return data, encoding
    if codec is None:
        raise not_decrypted(data)
    if bound_to.startswith(_RESULT) and (events := encrypted_events.read(data)) is not None:
        return _revealed(codec, data, events)
    plain = codec.decrypt(data, bound_to)
    return plain[1:], plain[0]


def _revealed(codec: Codec, data: bytes, events: encrypted_events.EncryptedEvents) -> tuple[bytes, int]:
    """Return the result of a node that waited for these events. Raises DecryptionError."""
    values = [
        (each.key, *reveal(codec, each.data, each.encoding, event_of(events.namespace, each.key)))
        for each in events.values
    ]
    if not events.needs:
        ((_, value, encoding),) = values
        return value, encoding
    try:
        read = {key: decode(value, encoding) for key, value, encoding in values}
        said: object = read
        if events.needs == "first":
            ((key, only),) = read.items()
            said = {"key": key, "value": only}
        return json.dumps(said, allow_nan=False).encode(), task_pb2.ENCODING_JSON
    except (ValueError, TypeError, RecursionError, PayloadError) as error:  # bytes, or what is no JSON
        raise DecryptionError(
            f"the value of an event is no JSON: where a node waits for several keys, send JSON to each ({error})",
            key_id_of(data),
        ) from error


def reveal_if_possible(codec: Codec | None, data: bytes, encoding: int, bound_to: bytes) -> tuple[bytes, int]:
    """Return bytes and their encoding as they were before `protect`, or as they are if they cannot be decrypted."""
    try:
        return reveal(codec, data, encoding, bound_to)
    except DecryptionError:
        return data, encoding


def value_or_sign(data: bytes, encoding: int) -> Any:
    """Return the value of bytes, or an EncryptedPayload if they are encrypted."""
    if encoding == task_pb2.ENCODING_ENCRYPTED:
        return EncryptedPayload(key_id_of(data))
    return decode(data, encoding)


def encoding_of_checkpoint(data: bytes) -> task_pb2.Encoding.ValueType:
    """Return how a checkpoint is to be read: the wire does not say so."""
    return task_pb2.ENCODING_ENCRYPTED if data.startswith(HEAD) else task_pb2.ENCODING_JSON


def head_of(key_id: str) -> bytes:
    """Return what encrypted bytes begin with."""
    name = key_id.encode()
    return HEAD + bytes([len(name)]) + name


def key_id_of(data: bytes) -> str:
    """Return the name of the key of encrypted bytes; empty if they have no head."""
    if not data.startswith(HEAD) or len(data) < len(HEAD) + 1:
        return ""
    start = len(HEAD) + 1
    return data[start : start + data[start - 1]].decode("utf-8", "replace")


def not_decrypted(data: bytes) -> DecryptionError:
    """Return the error for bytes that nobody here can decrypt."""
    key_id = key_id_of(data)
    return DecryptionError(
        f"encrypted (key {key_id}): give Client(codec=...) or App(codec=...) a codec that has this key",
        key_id,
    )


def _id_bytes(task_id: str | bytes) -> bytes:
    return UUID(task_id).bytes if isinstance(task_id, str) else task_id
