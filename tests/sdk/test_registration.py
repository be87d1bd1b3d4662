import dataclasses
import functools
from datetime import timedelta
from typing import Any

import pytest

import duly
import duly.testing
from duly_wire.v1 import registry_pb2


@dataclasses.dataclass
class Mail:
    to: str


@pytest.fixture
def app():
    return duly.App(owner="team-mail", version="1.4.2")


def test_a_lambda_is_declared_with_its_owners_policy(app):
    app.callback(
        "mail.send",
        max_attempts=5,
        max_crashes=2,
        max_runtime=timedelta(minutes=2),
        backoff=duly.Backoff(initial=timedelta(seconds=1), factor=2.0, maximum=timedelta(minutes=10)),
        payload_limit=1000,
        crash_window=timedelta(hours=1),
    )(lambda payload: payload)

    (declared,) = app.lambdas()

    expected = registry_pb2.Lambda(
        name="mail.send", owner="team-mail", version="1.4.2", max_attempts=5, max_crashes=2, payload_limit=1000,
        crash_window={"seconds": 3600},
        max_runtime={"seconds": 120}, backoff={"initial": {"seconds": 1}, "factor": 2.0, "max": {"seconds": 600}},
    )  # fmt: skip
    assert declared == expected


def test_what_the_owner_leaves_out_is_absent_from_the_declaration(app):
    app.callback("mail.send")(lambda payload: payload)

    assert app.lambdas() == [registry_pb2.Lambda(name="mail.send", owner="team-mail", version="1.4.2")]


def test_the_function_is_left_as_it_was(app):
    def send(payload):
        return payload

    assert app.callback("mail.send")(send) is send


class Method:
    def send(self, payload: Mail, ctx):
        return payload.to

    async def __call__(self, payload: Mail):
        return payload.to


def passes_on(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


def with_default(payload: Mail, client=None, *, retries=3):
    assert (client, retries) == (None, 3)
    return payload.to


def with_annotated_context(payload: Mail, attempt: "duly.TaskContext"):
    return payload.to if attempt.attempt == 1 else None


@pytest.mark.parametrize(
    "callback",
    [
        with_default,
        with_annotated_context,
        Method().send,
        Method(),
        passes_on(with_default),
        functools.partial(with_default, retries=3),
    ],
)
def test_all_sorts_of_callables_are_called_with_what_they_take(app, callback):
    app.callback("mail.send")(callback)

    assert duly.testing.run(app, "mail.send", {"to": "ann"}).result == "ann"


def test_a_callback_may_take_nothing(app):
    app.callback("tick")(lambda: "tock")

    assert duly.testing.run(app, "tick", {"any": "thing"}).result == "tock"


@pytest.mark.parametrize("name", ["a", "shop/mail.send", "s/" + "a" * 126])
def test_a_name_may_have_a_namespace(app, name):
    app.callback(name)(lambda: None)

    assert [each.name for each in app.lambdas()] == [name]


@pytest.mark.parametrize(
    "name",
    ["", "Mail", ".mail", "mail send", "mail\n", "a" * 129, "ä", None, "/a", "a/", "a/b/c", "s/" + "a" * 127],
)
def test_a_badly_formed_name_is_refused(app, name):
    with pytest.raises(duly.RegistrationError, match="is not a lambda name"):
        app.callback(name)(lambda payload: payload)


def test_a_name_declared_twice_is_refused(app):
    app.callback("mail.send")(with_default)

    with pytest.raises(
        duly.RegistrationError, match=r"'mail.send' is declared twice: it is with_default already"
    ):
        app.callback("mail.send")(lambda payload: payload)


def generator(payload):
    yield payload


def raw_undeclared(payload: bytes):
    pass


def unresolvable(payload: "Nowhere"):  # noqa: F821 (the point)
    pass


def unreadable(payload: set[int]):
    pass


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        (3, "must be a function"),
        (Mail, "must be a function"),
        (generator, "contains yield"),
        (lambda a, b, c: None, "and no more"),
        (lambda ctx: None, "the first parameter is the payload"),
        (lambda payload, *, needed: None, "'needed' would never be given"),
        (lambda *args: None, "functools.wraps"),
        (raw_undeclared, "needs raw=True"),
        (unresolvable, "cannot be resolved.*Nowhere"),
        (unreadable, "cannot be read into"),
    ],
)
def test_a_callback_that_cannot_work_is_refused_by_the_lambdas_name(app, callback, message):
    with pytest.raises(duly.RegistrationError, match=f"lambda 'mail.send': .*{message}"):
        app.callback("mail.send")(callback)


def test_raw_without_a_payload_of_bytes_is_refused(app):
    with pytest.raises(duly.RegistrationError, match="declare the payload as bytes"):
        app.callback("mail.send", raw=True)(lambda payload: payload)


@pytest.mark.parametrize(
    "policy",
    [
        {"max_attempts": 0},
        {"max_attempts": 1.5},
        {"max_crashes": True},
        {"max_crashes": 1001},
        {"crash_window": timedelta(0)},
        {"max_runtime": timedelta(0)},
        {"max_runtime": 60},
        {"payload_limit": 2**20 + 1},
        {"result_limit": 0},
        {"backoff": 3},
        {"fatal_exceptions": ValueError},
        {"fatal_exceptions": ("ValueError",)},
        {"on_exception": "ignore"},
    ],
)
def test_a_bad_policy_is_refused_by_the_name_of_what_is_wrong(app, policy):
    with pytest.raises(duly.RegistrationError, match=next(iter(policy))):
        app.callback("mail.send", **policy)


@pytest.mark.parametrize(
    "backoff",
    [
        {"initial": timedelta(0)},
        {"factor": 0.5},
        {"factor": float("nan")},
        {"initial": timedelta(2), "maximum": timedelta(1)},
    ],
)
def test_a_backoff_that_is_none_is_refused(backoff: dict[str, Any]):
    with pytest.raises(duly.RegistrationError, match=r"backoff\."):
        duly.Backoff(**backoff)


def test_an_option_that_there_is_not_names_the_closest_one(app):
    with pytest.raises(duly.RegistrationError, match="no argument backof=: do you mean backoff="):
        app.callback("mail.send", backof=1)
