"""The identity provider as commands know it: a client without a secret."""

from dataclasses import dataclass

from duly_core.oidc.provider import OidcClient, Provider


@dataclass(slots=True)
class LastFailure:
    """Keeps why the provider did not answer, for the error that people see."""

    reason: str = ""

    def answered(self, _call: str) -> None:
        """Forget the failure before."""
        self.reason = ""

    def refused(self, _call: str, _error: str) -> None:
        """Nothing to keep: the error says it."""

    def failed(self, _call: str, reason: str) -> None:
        """Keep why."""
        self.reason = reason

    def told(self, error: Exception) -> str:
        """Return an error's text, with the reason."""
        text = str(error)
        return f"{text}: {self.reason}" if self.reason and self.reason not in text else text


def open_provider(
    issuer: str, client_id: str, scopes: str, redirect_uri: str = ""
) -> tuple[Provider, LastFailure]:
    """Return a provider, and what keeps why it does not answer."""
    client = OidcClient(
        issuer,
        client_id,
        scopes,
        redirect_uri,
        f"is {client_id!r} its id, is it a public client, and may it sign in this way? See auth.oidc_cli_client_id",
    )
    failure = LastFailure()
    return Provider(client, failure), failure
