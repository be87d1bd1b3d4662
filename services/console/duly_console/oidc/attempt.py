"""A sign-in that has begun: what the browser keeps until the identity provider sends it back."""

import hmac
import json
import secrets
from dataclasses import dataclass

from cryptography.fernet import InvalidToken, MultiFernet

LASTS = 600
"""Seconds that a person has to sign in at the provider."""
_LONGEST_BACK = 1_500
"""Characters: the browser must keep the cookie."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """It is in a cookie of this browser, encrypted. Nobody else can end it."""

    state: str
    nonce: str
    verifier: str
    """Of PKCE."""
    back: str
    """The page to go on with."""

    @classmethod
    def new(cls, back: str) -> "Attempt":
        """Begin one."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        return cls(state, nonce, verifier, back if len(back) <= _LONGEST_BACK else "/")

    def is_of(self, state: str) -> bool:
        """Whether an answer of the provider belongs to it."""
        return hmac.compare_digest(self.state.encode(), state.encode())

    def write(self, keys: MultiFernet) -> str:
        """Return the cookie's value."""
        said = {"state": self.state, "nonce": self.nonce, "verifier": self.verifier, "back": self.back}
        return keys.encrypt(json.dumps(said).encode()).decode()

    @classmethod
    def read(cls, keys: MultiFernet, value: str) -> "Attempt | None":
        """Return the one of a cookie; None: it is too old, or not ours."""
        try:
            said = json.loads(keys.decrypt(value.encode(), ttl=LASTS))
            return cls(said["state"], said["nonce"], said["verifier"], said["back"])
        except (InvalidToken, UnicodeEncodeError, ValueError, KeyError, TypeError):
            # the keys also write other cookies
            return None
