"""Refuses requests that come from other sites: by their Host, their Origin, and the token of the form."""

import hmac
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from duly_core.config.addresses import is_loopback

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # with `no-referrer` browsers would send `Origin: null` with forms
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
"""Of each answer."""
ONLY_BY_TLS = (b"strict-transport-security", b"max-age=31536000")
"""Of each answer where browsers come by TLS: they are to come by nothing else for a year."""


class BrowserChecks:
    """The checks of one console."""

    def __init__(self, listen: str, public_url: str) -> None:
        self._is_local = is_loopback(listen)
        self._public = urlsplit(public_url).netloc.lower()

    def host_problem(self, host: str, *, is_anonymous: bool) -> str:
        """Return why a request with this Host is refused; empty: it is served.

        A page of another site whose name was bound to this address (DNS rebinding) has that site's name as Host. It has
        no cookie of ours, so it matters only where nobody signs in, and on this machine's own address.
        """
        host = host.lower()
        if host == self._public and self._public:
            return ""
        name = _name_in(host)
        if is_loopback(f"{name}:0"):
            return ""
        is_address = _is_address(name)
        if self._is_local or (is_anonymous and not is_address) or (self._public and not is_address):
            return (
                f"The console does not serve the name {name[:100]!r}. Open it by its address, or set console.public_url "
                "to the address that browsers use."
            )
        return ""

    @staticmethod
    def origin_problem(headers: Headers) -> str:
        """Return why a request that changes something is refused; empty: a page of ours made it."""
        site = headers.get("sec-fetch-site")
        origin = headers.get("origin")
        if site is None and origin is None:
            return "The browser does not say which page made this request."
        if site is not None and site != "same-origin":
            return "A page of another site made this request."
        if origin is not None and _netloc_of(origin) != headers.get("host", "").lower():
            return "A page of another site made this request."
        return ""


def is_token(expected: str, given: str) -> bool:
    """Whether a form has the token of its session."""
    return bool(expected) and hmac.compare_digest(expected.encode(), given.encode())


def _name_in(host: str) -> str:
    """Return the name or address in a Host; empty: the Host has no name."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:  # such as "[": strangers send it
        return ""


def _netloc_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
