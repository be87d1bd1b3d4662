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
        from duly_core.attachments.s3 import S3Blobs  # boto3 is loaded where it is needed

        if not settings.bucket:
            raise SettingsError('attachments.bucket: attachments.store = "s3" needs a bucket')
        return S3Blobs.open(settings)
    return None
