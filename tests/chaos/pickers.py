"""Which faults reach those who give tasks their turn: a pick may be lost then, or what it locked may stay locked. Pure."""

_SERVICES = ("server", "hsc", "store-consumer")
_STATEMENTS = ("clock_", "sqs_", "postgres_")
"""Kinds, by how they begin, that reach every pick."""
_OF_PICKS = ("hsc.claim", "store_consumer.push", "store_consumer.put_back")
_IN_SERVICES = ("frontend.", "hsc.", "store_consumer.")
_ENDS_PROCESS = ("point_crash", "claim_crash", "claim_freeze")


def reaches_picks(kind: str, target: str) -> bool:
    """Tell whether a fault may keep a due task from its turn. One that lets a task start later for all alike does not."""
    kind = kind.removesuffix("?")  # done in part
    if kind.startswith(_STATEMENTS):
        return True
    if kind.startswith("net_"):
        return target.endswith((">postgres", ">queue"))
    if kind.startswith(("point_", "claim_")):
        return target.startswith(_IN_SERVICES if kind in _ENDS_PROCESS else _OF_PICKS)
    return target.startswith(_SERVICES)
