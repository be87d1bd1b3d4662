"""Names of SQS queues."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly_core.errors import SettingsError
from duly_core.lambdas.names import LAMBDA_NAME, QueueKey
from duly_core.queues.sqs.names import check_prefix, queue_name
from duly_wire.enums import Priority

LAMBDA = st.from_regex(LAMBDA_NAME, fullmatch=True)
PREFIX = st.from_regex(r"[A-Za-z0-9_-]{1,40}", fullmatch=True)
QUEUE = st.builds(QueueKey, LAMBDA, st.sampled_from(Priority))


def test_a_name_can_be_read_by_people():
    name = queue_name("duly", QueueKey("mail.send", Priority.NORMAL))

    assert re.fullmatch("duly-mail-send-[0-9a-f]{16}-3", name)


@given(PREFIX, QUEUE)
def test_every_queue_has_a_name_that_sqs_allows(prefix, queue):
    check_prefix(prefix)

    assert re.fullmatch("[A-Za-z0-9_-]{1,80}", queue_name(prefix, queue))


@given(st.sets(QUEUE))
def test_no_two_queues_share_a_name(queues):
    assert len({queue_name("duly", queue) for queue in queues}) == len(queues)


def test_lambdas_that_differ_only_in_what_sqs_forbids_or_cuts_off_are_told_apart():
    lambdas = ["a.b", "a-b", "a" * 127 + "b", "a" * 127 + "c"]

    assert len({queue_name("duly", QueueKey(name, Priority.LOW)) for name in lambdas}) == len(lambdas)


def test_installations_with_different_prefixes_never_share_a_name():
    assert queue_name("duly", QueueKey("a.b", Priority.LOW)) != queue_name(
        "duly-a", QueueKey("b", Priority.LOW)
    )


@pytest.mark.parametrize("prefix", ["", "my duly", "duly.", "é", "x" * 41, "duly\n"])
def test_a_prefix_that_sqs_would_refuse_is_refused(prefix):
    with pytest.raises(SettingsError, match=r"queue\.prefix"):
        check_prefix(prefix)
