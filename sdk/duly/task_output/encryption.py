"""How the application's codec encrypts the output of tasks: chunk by chunk, each bound to its task. Free of gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duly.callbacks.codec import not_decrypted
from duly_wire.v1 import output_pb2

if TYPE_CHECKING:
    from duly.callbacks.codec import Codec


def sealed(codec: Codec | None, task_id: bytes, chunk: output_pb2.OutputChunk) -> output_pb2.OutputChunk:
    """Return a plain chunk as it is sent: encrypted, if there is a codec."""
    if codec is not None:
        identity = task_id + chunk.fence.to_bytes(4, "big") + chunk.number.to_bytes(4, "big")
        chunk.encrypted = codec.encrypt(chunk.plain.SerializeToString(), _output_of(task_id), identity)
    return chunk


def opened(codec: Codec | None, task_id: bytes, chunk: output_pb2.OutputChunk) -> output_pb2.OutputPieces:
    """Return what a chunk has. Raises DecryptionError."""
    if not chunk.HasField("encrypted"):
        return chunk.plain
    if codec is None:
        raise not_decrypted(chunk.encrypted)
    return output_pb2.OutputPieces.FromString(codec.decrypt(chunk.encrypted, _output_of(task_id)))


def _output_of(task_id: bytes) -> bytes:
    return b"output\0" + task_id
