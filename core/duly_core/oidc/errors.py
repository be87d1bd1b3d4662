"""Why an identity provider signs nobody in."""

from duly_core.errors import DulyError


class ProviderAwayError(DulyError):
    """It does not answer, or not as a provider does: it may later. ClientRefusedError: it does not know this client."""


class ClientRefusedError(ProviderAwayError):
    """It does not know this client, or does not let it sign people in this way: waiting does not help."""


class ProviderRefusedError(DulyError):
    """It refused a code or a refresh token, or what it answered is not meant for this client."""

    def __init__(self, message: str, code: str = "") -> None:
        """Make one; `code` is the provider's own error, such as invalid_grant."""
        super().__init__(message)
        self.code = code
