"""How long a lambda that misbehaved is kept apart."""

from datetime import timedelta

import pytest

from duly_executor.processes.suspects import IsolatedLambdas


@pytest.fixture
def isolated_lambdas() -> IsolatedLambdas:
    return IsolatedLambdas(timedelta(seconds=60))


def test_a_lambda_is_kept_apart_for_a_while_after_its_last_misbehaviour(
    isolated_lambdas: IsolatedLambdas,
) -> None:
    assert isolated_lambdas.misbehaved("bad", 0.0)
    assert not isolated_lambdas.misbehaved("bad", 30.0)

    assert isolated_lambdas.look(89.9) == []
    assert isolated_lambdas.separate == {"bad"}
    assert isolated_lambdas.look(90.0) == ["bad"]
    assert isolated_lambdas.separate == set()


def test_the_while_doubles_up_to_a_bound_when_another_chance_was_missed(
    isolated_lambdas: IsolatedLambdas,
) -> None:
    now, periods = 0.0, []
    for _ in range(7):
        isolated_lambdas.misbehaved("bad", now)
        end = now
        while not isolated_lambdas.look(end):
            end += 60.0
        periods.append(end - now)
        now = end + 1

    assert periods == [60.0, 120.0, 240.0, 480.0, 960.0, 960.0, 960.0]


def test_good_behaviour_for_as_long_again_is_forgiven_for_good(isolated_lambdas: IsolatedLambdas) -> None:
    isolated_lambdas.misbehaved("bad", 0.0)
    isolated_lambdas.look(60.0)
    isolated_lambdas.look(120.0)

    isolated_lambdas.misbehaved("bad", 121.0)

    assert isolated_lambdas.look(181.0) == ["bad"]


def test_nobody_is_kept_apart_for_no_time() -> None:
    isolated_lambdas = IsolatedLambdas(timedelta())

    assert not isolated_lambdas.misbehaved("bad", 0.0)
    assert isolated_lambdas.separate == set()
