"""Errors that an operator or a caller is meant to read. The docstring says when, the message says what to do."""

from datetime import timedelta


class DulyError(Exception):
    """Base of all of them. Its text is for people and is printed without a traceback."""


class SettingsError(DulyError):
    """A setting is unusable, or several contradict each other."""


class StoreUnavailableError(DulyError):
    """Postgres cannot be reached, or did not answer in time. Try again."""


class RowLockedError(StoreUnavailableError):
    """A statement waited too long for a row that another transaction holds. Try again."""


class NoConnectionError(StoreUnavailableError):
    """No connection of the pool was free in time; nothing was sent."""


class StatementTimeoutError(StoreUnavailableError):
    """A statement exceeded its time limit: it reads too much, or Postgres is slow."""


class StoreRefusedError(StoreUnavailableError):
    """Postgres refuses a statement until somebody grants a right or corrects the schema."""


class CellFencedError(StoreUnavailableError):
    """The cell refuses writes, for it moves to another place. Try again: the directory will say where it is."""


class NotInCellError(DulyError):
    """Another cell owns the namespace, at the version of the directory that the store has. Nothing was written."""


class QueueUnavailableError(DulyError):
    """SQS cannot be reached, or did not answer in time. Store Consumer and Controller try again by themselves."""


class BlobsUnavailableError(DulyError):
    """Attachments cannot be written or read now: their disk is full, or S3 does not answer. Try again."""


class PortInUseError(DulyError):
    """Another process listens on the address that a server was told to serve."""


class ApplicationError(DulyError):
    """The lambda owner's module cannot be imported, or declares no lambdas."""


class NoAttachmentStoreError(DulyError):
    """A caller uploads an attachment, and the installation has no store of attachments (`attachments.store`)."""


class NotAttachedError(DulyError):
    """An Executor called a Controller that does not know it. It has to attach again first."""


class OverloadedError(DulyError):
    """A process got more calls than it can serve in time. Try again after `retry_after`."""

    def __init__(self, message: str, retry_after: timedelta = timedelta(seconds=1)) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class TooMuchError(DulyError):
    """A call asked for more than one call may have or read. Ask for less."""


class UnauthenticatedError(DulyError):
    """A call does not say who makes it, or says it with something that is not valid."""


class PermissionDeniedError(DulyError):
    """Whoever made the call may not do this."""


class NotFoundError(DulyError):
    """A call names something that does not exist."""

    resource_type = ""
    """What it is, for programs; empty: the message alone says it."""


class InvalidRequestError(DulyError):
    """A request is invalid as a whole. The details name the field."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message
