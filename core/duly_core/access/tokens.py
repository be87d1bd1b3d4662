"""Makes tokens: `duly_ID_SECRET`."""

import hashlib
import secrets

TOKEN_PREFIX = "duly_"  # noqa: S105 (it begins every token, and is none)
_ID_BYTES = 6
_SECRET_BYTES = 32


def new_token() -> tuple[str, str, bytes]:
    """Return a token's id, the token, and the SHA-256 that the store keeps of it."""
    token_id = secrets.token_hex(_ID_BYTES)
    token = f"{TOKEN_PREFIX}{token_id}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    return token_id, token, hashlib.sha256(token.encode()).digest()
