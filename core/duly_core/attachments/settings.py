"""Settings of attachments."""

from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Literal, Self

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

    def of_cell(self, cell: str, default_cell: str) -> Self:
        """Return where a cell's attachments are: each cell marks its place as its own, and removes there what no task uses.

        The default cell has the place that an installation of one store has; so has a sole store, whose name is empty.
        """
        if cell in ("", default_cell):
            return self
        prefix = self.prefix if self.prefix.endswith("/") else f"{self.prefix}/"
        return self.model_copy(
            update={"folder": str(Path(self.folder) / "cells" / cell), "prefix": f"{prefix}cells/{cell}/"}
        )
