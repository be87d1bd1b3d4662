"""The identity provider as the console knows it: a client of it, as settings say."""

import time
from collections.abc import Callable
from pathlib import Path

from duly_console import events
from duly_console.settings import ConsoleSettings
from duly_core.oidc.provider import OidcClient, Provider

CALLBACK = "/sign-in/callback"
"""The path to which the provider sends browsers back."""


class _Counted:
    """Counts and logs the calls."""

    answered = staticmethod(events.provider_answered)
    refused = staticmethod(events.provider_refused)
    failed = staticmethod(events.provider_failed)


def open_provider(
    settings: ConsoleSettings,
    base_url: str,
    read_secret: Callable[[], str],
    clock: Callable[[], float] = time.time,
) -> Provider:
    """Return the provider of these settings, to which this console is one client.

    Args:
        settings: of the console.
        base_url: the console's address in browsers.
        read_secret: returns the client's secret; empty: it has none.
        clock: seconds since 1970.
    """
    client = OidcClient(
        settings.oidc_issuer,
        settings.oidc_client_id,
        settings.oidc_scopes,
        f"{base_url}{CALLBACK}",
        "see console.oidc_client_id and console.oidc_client_secret_file",
        read_secret,
    )
    return Provider(client, _Counted(), clock)


def secret_reader(path: str) -> Callable[[], str]:
    """Return what reads the client's secret: again for each call, so that it may be replaced."""
    return (lambda: Path(path).read_text("utf-8").strip()) if path else (lambda: "")
