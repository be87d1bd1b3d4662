"""Opens the sign-in by an identity provider, as settings say."""

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from duly_console.secret_files import check_mode
from duly_console.settings import ConsoleSettings
from duly_core.errors import SettingsError

if TYPE_CHECKING:
    from duly_console.oidc.renewal import Renewals
    from duly_core.oidc.provider import Provider

_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 (addresses at which no browser comes)


@dataclass(frozen=True, slots=True)
class Oidc:
    """What a console needs beside its settings."""

    provider: "Provider"
    renewals: "Renewals"
    base_url: str
    """The console's address in browsers."""


def open_oidc(settings: ConsoleSettings, *, secure: bool) -> Oidc | None:
    """Return what signs people in; None: `console.oidc_issuer` is empty.

    Raises:
        SettingsError: settings are missing, or the client's secret cannot be read.
    """
    if not settings.oidc_issuer:
        if settings.oidc_client_id or settings.oidc_client_secret_file:
            raise SettingsError(
                "console.oidc_client_id and its secret need console.oidc_issuer: who signs people in"
            )
        return None
    if not settings.oidc_client_id:
        raise SettingsError(
            "console.oidc_issuer needs console.oidc_client_id: what the provider calls this console"
        )
    try:
        from duly_console.oidc.console_provider import open_provider, secret_reader
        from duly_console.oidc.renewal import Renewals
    except ImportError as error:
        raise SettingsError(
            "console.oidc_issuer needs Authlib and aiohttp: pip install 'duly[oidc]'"
        ) from error
    read_secret = secret_reader(settings.oidc_client_secret_file)
    if path := settings.oidc_client_secret_file:
        try:
            check_mode("console.oidc_client_secret_file", path)
            if not read_secret():
                raise SettingsError(f"console.oidc_client_secret_file: {path} is empty")
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"console.oidc_client_secret_file: {path} cannot be used: {error}") from error
    base_url = _base_url(settings, secure=secure)
    provider = open_provider(settings, base_url, read_secret)
    return Oidc(provider, Renewals(provider), base_url)


def _base_url(settings: ConsoleSettings, *, secure: bool) -> str:
    """Return the address to which the provider sends browsers back. What a request names as Host does not count."""
    if settings.public_url:
        return settings.public_url.rstrip("/")
    parts = urlsplit(f"//{settings.listen}")
    if parts.hostname in _EVERYWHERE or not parts.port:
        raise SettingsError(
            f"console.oidc_issuer needs console.public_url: the provider cannot send browsers back to {settings.listen}"
        )
    return f"{'https' if secure else 'http'}://{settings.listen}"
