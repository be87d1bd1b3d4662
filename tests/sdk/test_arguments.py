"""What is wrong with the arguments of a call: the closest known name, the field, the limit."""

from datetime import timedelta

import pytest

import duly
from duly.transport.error_mapping import from_item, of_graph
from duly_wire.v1 import task_pb2


@pytest.mark.parametrize(
    ("kind", "given", "error", "said"),
    [
        (duly.Batch, {"size": 3, "waits": timedelta()}, duly.RegistrationError, "waits=: do you mean wait="),
        (duly.Backoff, {"maximun": timedelta()}, duly.RegistrationError, "maximun=: do you mean maximum="),
        (
            duly.Unique,
            {"key": "a", "on_conflit": 1},
            duly.InvalidTaskError,
            "on_conflit=: do you mean on_conflict=",
        ),
        (duly.Debounce, {"key": "a", "zzz": 1}, duly.InvalidTaskError, "zzz=: there are at_most, key, wait"),
        (
            duly.NewGraph("g").wait,
            {"label": "a", "time_out": 1},
            duly.InvalidTaskError,
            "do you mean timeout=",
        ),
        (
            duly.AsyncClient("127.0.0.1:1").put_calendar,
            {"name": "a", "hollidays": 1},
            duly.InvalidTaskError,
            "mean holidays=",
        ),
    ],
)
def test_an_unknown_argument_is_refused_with_the_closest_known_one(kind, given, error, said):
    with pytest.raises(error, match=said):
        kind(**given)


def test_each_method_of_the_blocking_client_does_so():
    with duly.Client("127.0.0.1:1") as client:
        for call, given, said in (
            (client.ramp_lambda, {"versoin": "2"}, "do you mean version="),
            (client.watch, {"lambda_": ["a"]}, "do you mean lambdas="),
            (client.put_calendar, {"hollidays": []}, "do you mean holidays="),
        ):
            with pytest.raises(duly.InvalidTaskError, match=said):
                call("a", **given) if call != client.watch else call(**given)


def test_other_type_errors_stay_what_they_are():
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        duly.Batch()  # type: ignore[call-arg]
    with pytest.raises(duly.RegistrationError, match="must be a timedelta, not int"):
        duly.Batch(size=1, wait=0)  # type: ignore[arg-type]


def test_a_payload_that_is_too_large_is_named_with_its_limit():
    error = task_pb2.ItemError(
        code=task_pb2.ERROR_CODE_PAYLOAD_TOO_LARGE, field="value", message="70,000 bytes exceed 65,536"
    )

    for refused in (from_item(error), of_graph(error)):
        assert isinstance(refused, duly.PayloadTooLargeError)
        assert str(refused) == "value: 70,000 bytes exceed 65,536"
    with pytest.raises(
        duly.PayloadTooLargeError, match=r"^payload: [\d,]+ bytes exceed the [\d,]+ that any lambda takes"
    ):
        duly.NewTask("mail.send", b"x" * 5_000_000).to_fields()
