"""What is said of a lambda that is not registered, and of a version of one that is."""

from duly_core.rpc.requests.names import unknown_lambda

KNOWN = {"order.price": 1, "order.price@1": 1}


def test_a_version_that_nobody_declared_is_told_from_a_lambda_that_is_not_registered() -> None:
    version, neither = unknown_lambda("order.price@2", KNOWN), unknown_lambda("order.prize@2", KNOWN)

    assert "no worker declared that it serves version '2' of order.price" in version
    assert "duly register MODULE:APP" in version
    assert "no lambda 'order.prize@2' is registered" in neither
