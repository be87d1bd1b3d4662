"""Errors of connections, which the SDK and the services share."""


class DulyError(Exception):
    """Base of all errors of the SDK."""


class CredentialsError(DulyError, ValueError):
    """A token, a certificate or a key cannot be used: the file is missing, or has something else."""
