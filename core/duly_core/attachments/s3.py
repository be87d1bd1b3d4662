"""Attachments in a bucket of S3: an object for each part, PREFIX/BLOB/INDEX."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Self
from urllib.parse import urlsplit
from uuid import UUID

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from duly_core.attachments.blobs import PARTS_IN_FLIGHT, FoundBlob, blob_of
from duly_core.attachments.settings import AttachmentSettings
from duly_core.errors import BlobsUnavailableError

_MARKER = "store-id"
_TURN = "store-turn"
_MISSING = {"NoSuchKey", "404", "NotFound"}
_REMOVED_AT_A_TIME = 1_000
"""S3 takes no more in one call."""
_THIS_MACHINE: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class S3Blobs:
    """boto3's clients may be used by several threads."""

    def __init__(self, client: Any, bucket: str, prefix: str) -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = prefix if prefix.endswith("/") else f"{prefix}/"

    @classmethod
    def open(cls, settings: AttachmentSettings) -> Self:
        """Make a client. Nothing is asked of S3 yet."""
        core = botocore.session.Session()
        if urlsplit(settings.endpoint_url).hostname in _THIS_MACHINE:
            # What is here is a look-alike: do not ask the cloud who this machine is.
            core.set_config_variable("metadata_service_num_attempts", 0)
        session = boto3.session.Session(region_name=settings.region, botocore_session=core)
        credentials: dict[str, Any] = {}
        if settings.endpoint_url and session.get_credentials() is None:
            # A look-alike wants a signature, and does not check it.
            credentials = {"aws_access_key_id": "duly", "aws_secret_access_key": "duly"}
        config = Config(
            connect_timeout=2,
            read_timeout=10,
            retries={"mode": "standard", "total_max_attempts": 2},
            max_pool_connections=PARTS_IN_FLIGHT,
            tcp_keepalive=True,
        )
        # its stubs are no dependency of ours
        client: Any = session.client(
            "s3", endpoint_url=settings.endpoint_url or None, config=config, **credentials
        )
        return cls(client, settings.bucket, settings.prefix)

    @property
    def where(self) -> str:
        """As BlobStore says."""
        return f"s3://{self._bucket}/{self._prefix}"

    def put(self, blob: UUID, index: int, data: bytes) -> None:
        """As BlobStore says: S3 shows an object when all of it is there."""
        with self._doing("write"):
            self._client.put_object(Bucket=self._bucket, Key=self._key(blob, index), Body=data)

    def get(self, blob: UUID, index: int) -> bytes | None:
        """As BlobStore says."""
        return self._read(self._key(blob, index))

    def sizes(self, blob: UUID) -> Mapping[int, int]:
        """As BlobStore says."""
        with self._doing("read"):
            return {
                int(name): size
                for key, size, _ in self._objects(f"{self._prefix}{blob.hex}/")
                if (name := key.rpartition("/")[2]).isdecimal()
            }

    def sync(self, blob: UUID) -> None:
        """As BlobStore says: what S3 answered for lasts."""

    def remove(self, blob: UUID) -> None:
        """As BlobStore says."""
        with self._doing("remove"):
            beginning = f"{self._prefix}{blob.hex}/"
            keys = [key for key, *_ in self._objects(beginning) if key.removeprefix(beginning).isdecimal()]
            for start in range(0, len(keys), _REMOVED_AT_A_TIME):
                some = keys[start : start + _REMOVED_AT_A_TIME]
                answer = self._client.delete_objects(
                    Bucket=self._bucket, Delete={"Objects": [{"Key": key} for key in some], "Quiet": True}
                )
                if errors := answer.get("Errors"):
                    raise BlobsUnavailableError(
                        f"cannot remove attachments in {self._bucket} (attachments.bucket): {errors[0].get('Message', '')}"
                    )

    def blobs(self) -> Iterator[FoundBlob]:
        """As BlobStore says. Objects come in the order of their names: those of a blob follow one another."""
        last: FoundBlob | None = None
        with self._doing("read"):
            for key, _, changed_at in self._objects(self._prefix):
                name, _, index = key.removeprefix(self._prefix).partition("/")
                blob = blob_of(name)
                if blob is None or not index.isdecimal():
                    continue  # somebody else's
                if last is not None and last.blob != blob:
                    yield last
                    last = None
                last = FoundBlob(blob, changed_at if last is None else max(last.changed_at, changed_at))
        if last is not None:
            yield last

    def marker(self) -> str:
        """As BlobStore says."""
        return self._read_text(_MARKER)

    def put_marker(self, name: str) -> None:
        """As BlobStore says."""
        self._write_text(_MARKER, name)

    def turn(self) -> str:
        """As BlobStore says."""
        return self._read_text(_TURN)

    def put_turn(self, turn: str) -> None:
        """As BlobStore says."""
        self._write_text(_TURN, turn)

    def _read_text(self, name: str) -> str:
        return (self._read(f"{self._prefix}{name}") or b"").decode(errors="replace").strip()

    def _write_text(self, name: str, text: str) -> None:
        with self._doing("write"):
            self._client.put_object(
                Bucket=self._bucket, Key=f"{self._prefix}{name}", Body=f"{text}\n".encode()
            )

    def _key(self, blob: UUID, index: int) -> str:
        return f"{self._prefix}{blob.hex}/{index}"

    def _read(self, key: str) -> bytes | None:
        with self._doing("read"):
            try:
                data: bytes = self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read()
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") in _MISSING:
                    return None
                raise
            return data

    def _objects(self, prefix: str) -> Iterator[tuple[str, int, Any]]:
        for page in self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=prefix
        ):
            for each in page.get("Contents", ()):
                yield each["Key"], each["Size"], each["LastModified"]

    @contextmanager
    def _doing(self, what: str) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise BlobsUnavailableError(
                f"cannot {what} attachments in {self._bucket} (attachments.bucket): {error}"
            ) from error
