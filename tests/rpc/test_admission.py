"""Reads beyond a bound are refused, and those under way are not disturbed."""

import pytest

from duly_core.errors import OverloadedError
from duly_core.traffic.concurrency_limits import Admission


def test_a_call_beyond_the_bound_is_refused_until_another_ends() -> None:
    admission = Admission(1, "reads")
    refused = pytest.raises(OverloadedError, match="too many reads are under way")
    with admission.admitted(), refused, admission.admitted():
        pass

    with admission.admitted():
        pass


def test_a_call_that_fails_makes_room_too() -> None:
    admission = Admission(1, "reads")
    with pytest.raises(KeyError), admission.admitted():
        raise KeyError

    with admission.admitted():
        pass
