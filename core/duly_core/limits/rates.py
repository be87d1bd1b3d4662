"""The arithmetic of rates: GCRA, the generic cell rate algorithm (ITU-T I.371).

Functions of the store have the same (`duly_rate_wait`, `duly_rate_ahead` in functions.sql); both have the same cases in tests. All
values are seconds, counted from now.
"""


def rate_wait(ahead: float, pace: float, burst: int, weight: int = 1) -> float:
    """Return how long until units may start; not above 0: now.

    Args:
        ahead: until all start times that were given are over.
        pace: for each unit.
        burst: how many units may start at once.
        weight: how many are to start; more than the burst count as the burst.
    """
    return ahead - pace * (burst - min(weight, burst))


def rate_ahead(ahead: float, start_in: float, pace: float, burst: int, weight: int = 1) -> float:
    """Return the new `ahead` once units have a start time, `start_in` from now."""
    return max(ahead, start_in) + pace * min(weight, burst)
