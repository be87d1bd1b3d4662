"""Errors that an operator or a caller is meant to read. The docstring says when, the message says what to do."""


class DulyError(Exception):
    """Base of all of them: its text is for people and is printed without a traceback."""


class SettingsError(DulyError):
    """A setting is unusable, or several contradict each other."""


class StoreUnavailableError(DulyError):
    """Postgres cannot be reached, or did not answer in time; trying again may help."""


class RowLockedError(StoreUnavailableError):
    """A statement waited too long for a row that another transaction holds; the others may be free."""


class StatementTimeoutError(StoreUnavailableError):
    """A statement took longer than it may; it may be too much to read, or Postgres is slow."""


class StoreRefusedError(StoreUnavailableError):
    """Postgres refuses a statement until somebody grants a right or corrects the schema; trying again does not help."""


class QueueUnavailableError(DulyError):
    """The queue cannot be reached, or did not answer in time; trying again may help."""


class PortInUseError(DulyError):
    """Another process listens on the address that a server was told to serve."""


class ApplicationError(DulyError):
    """The lambda owner's module cannot be imported, or declares no lambdas."""


class NotAttachedError(DulyError):
    """An Executor asks a Controller that does not know it: attach (again) first."""


class OverloadedError(DulyError):
    """More is asked of a process than it can do in time; trying again later may help."""


class TooMuchError(DulyError):
    """More is asked for than one call may have or read: becomes RESOURCE_EXHAUSTED; asking for less helps."""


class InvalidRequestError(DulyError):
    """A request is unusable as a whole: becomes INVALID_ARGUMENT with the field named."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.description = message
