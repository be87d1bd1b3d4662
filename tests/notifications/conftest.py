"""Where the messages of these tests arrive."""

import pytest

from tests.fixtures.receivers import HttpReceiver


@pytest.fixture
def receiver(http_receiver: HttpReceiver) -> HttpReceiver:
    """An endpoint of a target: what the queues' fixture of this name is to them."""
    return http_receiver
