"""From the wire's chunks to the store's, and back."""

from duly_core.rpc.requests.problem import Problem
from duly_core.task_output.store import Chunk, NewChunk
from duly_wire.ids import TaskId
from duly_wire.output_rules import MOST_ADDED, MOST_CONTENT
from duly_wire.time_conversion import to_timestamp
from duly_wire.v1 import output_pb2

_STREAMS = frozenset(output_pb2.OutputStream.values()) - {output_pb2.OUTPUT_STREAM_UNSPECIFIED}
_MOST_POSITION = 1 << 62


def chunk_of(task_id: TaskId, chunk: output_pb2.OutputChunk) -> NewChunk:
    """Return a chunk that a worker sent.

    Raises:
        Problem: it is invalid.
    """
    if chunk.fence < 1:
        raise Problem("chunk.fence", "must be the number of the run, from 1")
    if chunk.number < 1:
        raise Problem("chunk.number", "must be positive")
    if not 0 <= chunk.position <= _MOST_POSITION:
        raise Problem("chunk.position", "must be how many bytes the run had written before")
    is_encrypted = chunk.HasField("encrypted")
    if is_encrypted:
        content, size = chunk.encrypted, chunk.size_bytes
        if not max(1, len(content) - MOST_ADDED) <= size <= MOST_CONTENT:
            raise Problem("chunk.size_bytes", "must be how many bytes were encrypted")
    else:
        for piece in chunk.plain.pieces:
            if piece.stream not in _STREAMS:
                raise Problem("chunk.plain.pieces.stream", "must be stdout, stderr or log")
            if not piece.data:
                raise Problem("chunk.plain.pieces.data", "must not be empty")
        content = chunk.plain.SerializeToString()
        size = sum(len(piece.data) for piece in chunk.plain.pieces)
    if not 1 <= len(content) <= MOST_CONTENT:
        raise Problem("chunk", f"must have 1 to {MOST_CONTENT:,} bytes, not {len(content):,}")
    return NewChunk(task_id, chunk.fence, chunk.number, chunk.position, size, is_encrypted, content)


def chunk_to_wire(chunk: Chunk) -> output_pb2.OutputChunk:
    """Return a chunk as readers get it."""
    told = output_pb2.OutputChunk(
        fence=chunk.fence,
        number=chunk.number,
        position=chunk.position,
        size_bytes=chunk.size_bytes,
        written_at=to_timestamp(chunk.written_at),
    )
    if chunk.is_encrypted:
        told.encrypted = chunk.content
    else:
        told.plain.MergeFromString(chunk.content)
    return told
