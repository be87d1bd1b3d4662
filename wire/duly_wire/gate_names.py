"""How gates are named: those of breakers, and those that people do not name."""

import hashlib
import re

BREAKER = "breaker:"
"""How the names of breakers' gates begin; their lambda follows."""
_LONGEST = 128
_HASHED = 8


def usual_name(kind: str, pattern: str, *parts: str) -> str:
    """Return the name of a gate by what it does and where, the same whenever the same is asked for.

    `parts` are its collection, priority and session. A name that lost a character ends with a hash: `shop/mail` and
    `shop-mail` have gates of their own.

    >>> usual_name("pause", "shop-mail", "", "low")
    'pause-shop-mail-low'
    >>> usual_name("pause", "shop/mail.*", "", "low")
    'pause-shop-mail.all-low-db54d54f'
    """
    joined = "-".join(filter(None, (kind, pattern, *parts)))
    name = re.sub(r"[^a-z0-9_.-]", "-", joined.replace("*", "all").lower())
    if name == joined and len(name) <= _LONGEST:
        return name
    digest = hashlib.sha256(joined.encode()).hexdigest()[:_HASHED]
    return f"{name[: _LONGEST - _HASHED - 1]}-{digest}"
