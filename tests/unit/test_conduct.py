"""How long a lambda that misbehaved is kept apart."""

from datetime import timedelta

import pytest

from duly_executor.conduct import Conduct


@pytest.fixture
def conduct() -> Conduct:
    return Conduct(timedelta(seconds=60))


def test_a_lambda_is_kept_apart_for_a_while_after_its_last_misbehaviour(conduct: Conduct) -> None:
    assert conduct.misbehaved("bad", 0.0)
    assert not conduct.misbehaved("bad", 30.0)

    assert conduct.look(89.9) == []
    assert conduct.separate == {"bad"}
    assert conduct.look(90.0) == ["bad"]
    assert conduct.separate == set()


def test_the_while_doubles_up_to_a_bound_when_another_chance_was_missed(conduct: Conduct) -> None:
    now, periods = 0.0, []
    for _ in range(7):
        conduct.misbehaved("bad", now)
        end = now
        while not conduct.look(end):
            end += 60.0
        periods.append(end - now)
        now = end + 1

    assert periods == [60.0, 120.0, 240.0, 480.0, 960.0, 960.0, 960.0]


def test_good_behaviour_for_as_long_again_is_forgiven_for_good(conduct: Conduct) -> None:
    conduct.misbehaved("bad", 0.0)
    conduct.look(60.0)
    conduct.look(120.0)

    conduct.misbehaved("bad", 121.0)

    assert conduct.look(181.0) == ["bad"]


def test_nobody_is_kept_apart_for_no_time() -> None:
    conduct = Conduct(timedelta())

    assert not conduct.misbehaved("bad", 0.0)
    assert conduct.separate == set()
