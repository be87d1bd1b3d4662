"""Bounds of the output of tasks that writer, server and reader share."""

from datetime import timedelta

CHUNK_BYTES = 32 * 1024
"""Of what one chunk has, as it was written."""
MOST_CONTENT = 64 * 1024
"""Bytes of the content of a chunk: serialized pieces, perhaps encrypted."""
MOST_ITEMS = 500
"""Of one call of AppendOutput."""
MOST_CALL_BYTES = 1024 * 1024
"""Of the content that a worker sends in one call."""
MOST_ADDED = 4096
"""How many bytes a codec may add to a chunk."""
LATE_FOR = timedelta(seconds=1)
"""So long after the end of a run its output may still come."""
