"""Settings of attachments."""

from datetime import timedelta
from typing import ClassVar, Literal

from pydantic import Field

from duly_core.config.settings import Duration, Section

_GIB = 1024**3


class AttachmentSettings(Section):
    """`[attachments]`: where files that tasks use are stored. All Frontends and Store Consumers need the same."""

    SECTION: ClassVar[str] = "attachments"

    store: Literal["", "folder", "s3"] = ""
    """`folder`: a folder of this machine, or one that all servers share. `s3`: a bucket. Empty: no attachments."""
    folder: str = ""
    """With `folder`: its path. It is made if it is not there."""
    bucket: str = ""
    """With `s3`: the bucket. It must be there."""
    prefix: str = "duly-attachments/"
    """With `s3`: names of objects begin with it."""
    endpoint_url: str = ""
    """With `s3`: its address. Empty: AWS."""
    region: str = "us-east-1"
    """With `s3`: the AWS region."""
    max_bytes: int = Field(default=5 * _GIB, ge=0, le=40 * _GIB)
    """The most bytes of one attachment."""
    quota: int = Field(default=0, ge=0)
    """The most bytes that the attachments of a namespace may have together. 0: any number."""
    grace: Duration = Field(default=timedelta(days=1), ge=timedelta(seconds=1))
    """How long an attachment stays that no task uses: since it was uploaded, or found to be there already. An upload that nobody goes on
    with stays for the same time."""
    sweep_interval: Duration = Field(default=timedelta(minutes=10), ge=timedelta(seconds=1))
    """How often Store Consumers look for attachments that no task uses any more."""
