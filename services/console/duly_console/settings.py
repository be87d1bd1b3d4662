"""Settings of the console."""

from datetime import timedelta
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from duly_core.access.issuer_metadata import issuer_problem
from duly_core.config.addresses import Peers, is_host_and_port
from duly_core.config.settings import Duration, Section


def _check_listen(address: object) -> object:
    if isinstance(address, str) and is_host_and_port(address):
        return address
    message = f"{address!r} is not an address to serve on: write HOST:PORT, such as 127.0.0.1:7480"
    raise ValueError(message)


def _check_url(url: str) -> str:
    parts = urlsplit(url)
    if not url or (parts.scheme in ("http", "https") and parts.netloc and parts.path in ("", "/")):
        return url
    message = f"{url!r} is not an address: write https://HOST, without a path"
    raise ValueError(message)


def _check_issuer(issuer: str) -> str:
    if issuer and (problem := issuer_problem(issuer)):
        raise ValueError(problem)
    return issuer


def _check_scopes(scopes: str) -> str:
    if "openid" not in scopes.split():
        message = f"{scopes!r} must have openid: write names with spaces between them"
        raise ValueError(message)
    return scopes


class ConsoleSettings(Section):
    """`[console]`."""

    SECTION: ClassVar[str] = "console"

    listen: Annotated[str, BeforeValidator(_check_listen)] = "127.0.0.1:7480"
    """HOST:PORT for browsers."""
    frontend_address: Peers = "127.0.0.1:7401"
    """Where the Frontend is. Several addresses stand with commas between them."""
    public_url: Annotated[str, AfterValidator(_check_url)] = ""
    """The address that browsers use where a proxy stands before the console, such as https://duly.example.com."""
    allow_remote_anonymous: bool = False
    """Serve other machines though `auth.mode` is `none`. Whoever reaches the console may then do everything."""
    secret_file: str = ""
    """File with the keys that encrypt session cookies, a line each: 32 bytes in URL-safe base64. The first encrypts, all
    decrypt. Consoles behind one address need the same file. Empty: a key of its own, and a restart ends all sessions."""
    session_lifetime: Duration = Field(default=timedelta(hours=12), ge=timedelta(minutes=1))
    """After this time a person signs in again."""
    page_timeout: Duration = Field(default=timedelta(seconds=10), ge=timedelta(seconds=1))
    """A page that takes longer is answered with an error."""
    max_connections: int = Field(default=200, ge=1)
    """Connections of browsers at a time. More are answered with 503, except for `/healthz`."""
    max_connections_per_address: int = Field(default=50, ge=1)
    """The same from one address; of IPv6, from one network of 64 bits. With `public_url` it has no effect: all connections
    are the proxy's."""
    oidc_issuer: Annotated[str, AfterValidator(_check_issuer)] = ""
    """Issuer of an identity provider (OpenID Connect), an https URL, at which people may sign in. Empty: with tokens only."""
    oidc_client_id: str = ""
    """What the identity provider calls this console. The Frontends need it as `auth.oidc_audience`."""
    oidc_client_secret_file: str = ""
    """File with the client's secret. It is read again for each use. Empty: the client has none, and PKCE alone protects."""
    oidc_scopes: Annotated[str, AfterValidator(_check_scopes)] = "openid profile email"
    """What the console asks of the identity provider. `offline_access` brings a refresh token from some of them."""
