"""How gates are named: those of breakers, and those that people do not name."""

BREAKER = "breaker:"
"""How the names of breakers' gates begin; their lambda follows."""
_LONGEST = 128


def usual_name(kind: str, pattern: str, *parts: str) -> str:
    """Return the name of a gate by what it does and where, the same whenever the same is asked for.

    `parts` are its collection, priority and session.

    >>> usual_name("pause", "shop/mail.*", "", "low")
    'pause-shop-mail.all-low'
    """
    joined = "-".join(filter(None, (kind, pattern.replace("*", "all"), *parts))).lower()
    return "".join(each if each.isalnum() or each in "_.-" else "-" for each in joined)[:_LONGEST]
