"""What chaos runs know of attachments when they are over: what is left is found, and each use is fetched."""

import hashlib
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import psycopg

from duly_core.attachments.folder import FolderBlobs
from tests.chaos.history import FileLeft
from tests.chaos.stored_files import left_of

CONTENT = b"abc"
HASH = hashlib.sha256(CONTENT).digest()
INSERT = """
insert into attachment (namespace, hash, size_bytes, part_hashes, blob, begun_at, touched_at, stored_at, removing_at)
values ('', %(hash)s, %(size)s, %(part_hashes)s, %(blob)s, duly_now(), duly_now() + %(ahead)s, duly_now(), %(removing_at)s)
"""


def test_what_is_left_of_attachments_is_found(dsn: str, tmp_path: Path) -> None:
    blobs = FolderBlobs.open(str(tmp_path))
    used, orphan = uuid4(), uuid4()
    blobs.put(used, 0, CONTENT)
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = {"hash": HASH, "size": 3, "part_hashes": HASH, "blob": used}
        connection.execute(INSERT, row | {"ahead": timedelta(0), "removing_at": None})
        connection.execute("insert into attachment_usage values ('', 3)")

        unused = list(left_of(dsn, tmp_path))
        connection.execute("update attachment set removing_at = duly_now()")
        removing = list(left_of(dsn, tmp_path))
        connection.execute(
            "update attachment set removing_at = null, touched_at = duly_now() + interval '1 hour'"
        )
        ahead = list(left_of(dsn, tmp_path))
        blobs.remove(used)
        blobs.put(orphan, 0, CONTENT)
        connection.execute("update attachment_usage set bytes = 4")
        torn = list(left_of(dsn, tmp_path))

    name = f"/{HASH.hex()}"
    assert unused == [FileLeft("unused", name)]
    assert removing == [FileLeft("removing", name)]
    assert ahead == []
    assert torn == [
        FileLeft("orphan", str(orphan)),
        FileLeft("part", name),
        FileLeft("usage", "the default namespace"),
    ]
