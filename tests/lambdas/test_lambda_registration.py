"""How a Controller divides the lambdas that it registers."""

from duly_controller.lambda_registration import _divided
from duly_wire.v1 import registry_pb2


def lambdas(number, tables=0, payload=b""):
    made = [registry_pb2.Lambda(name=f"lambda.{place}") for place in range(number)]
    for each in made:
        for place in range(tables):
            each.time_tables.add(name=f"{each.name}-{place}", payload=payload)
    return made


def test_a_call_registers_as_many_lambdas_as_the_registry_takes():
    made = lambdas(2_001)

    parts = list(_divided(made))

    assert [len(part) for part in parts] == [1_000, 1_000, 1]
    assert [each for part in parts for each in part] == made


def test_many_time_tables_and_large_ones_go_in_calls_of_their_own():
    assert [len(part) for part in _divided(lambdas(5, tables=400))] == [2, 2, 1]
    assert [len(part) for part in _divided(lambdas(3, tables=1_000))] == [1, 1, 1]
    assert [len(part) for part in _divided(lambdas(4, tables=1, payload=bytes(400_000)))] == [2, 2]
    assert list(_divided([])) == []
