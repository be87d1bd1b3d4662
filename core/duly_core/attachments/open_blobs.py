"""Opens the store of blobs that the settings name."""

from duly_core.attachments.blobs import BlobStore
from duly_core.attachments.folder import FolderBlobs
from duly_core.attachments.settings import AttachmentSettings
from duly_core.errors import SettingsError


def open_blobs(settings: AttachmentSettings) -> BlobStore | None:
    """Open the store that the settings name; None: they name none.

    Raises:
        SettingsError: it lacks a setting, or the folder cannot be made.
    """
    if settings.store == "folder":
        if not settings.folder:
            raise SettingsError('attachments.folder: attachments.store = "folder" needs a folder')
        return FolderBlobs.open(settings.folder)
    if settings.store == "s3":
        if not settings.bucket:
            raise SettingsError('attachments.bucket: attachments.store = "s3" needs a bucket')
        if not settings.prefix.strip("/"):
            raise SettingsError(
                "attachments.prefix: must not be empty: the bucket may have objects that are no attachments"
            )
        try:
            from duly_core.attachments.s3 import S3Blobs  # boto3 is loaded where it is needed
        except ImportError as error:
            raise SettingsError(
                f'attachments.store: "s3" needs boto3: install duly[sqs], which has it ({error})'
            ) from error
        return S3Blobs.open(settings)
    return None
