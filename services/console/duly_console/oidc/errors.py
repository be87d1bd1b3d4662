"""Why an identity provider signs nobody in."""

from duly_core.errors import DulyError


class ProviderAwayError(DulyError):
    """It does not answer, or not as a provider does: it may later."""


class ProviderRefusedError(DulyError):
    """It refused a code or a refresh token, or what it answered is not meant for this console."""
