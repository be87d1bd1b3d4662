"""Percentiles, in the one way that all figures use."""

import math
from collections.abc import Sequence


def percentile(ordered: Sequence[float], part: float) -> float:
    """The smallest value that at least this part of the sorted values does not exceed."""
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]
