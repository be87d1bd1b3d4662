"""Page tokens: they lead on, hold for their own list only, and cannot be made up."""

import base64

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from duly_core.errors import InvalidRequestError
from duly_frontend.lists import page_token
from duly_wire.v1 import frontend_pb2

LAST = bytes(range(16))
FILTERS = {
    "lambda": {"lambda": "mail.send"},
    "collection": {"collection": "spring"},
    "statuses": {"statuses": [1]},
    "priorities": {"priorities": [1]},
    "failure_kinds": {"failure_kinds": [1]},
    "finished_after": {"finished_after": Timestamp(seconds=1)},
    "finished_before": {"finished_before": Timestamp(seconds=1)},
}


def a_list(token="", **filters):
    return frontend_pb2.ListTasksRequest(page_token=token, **filters)


@given(st.binary(min_size=16, max_size=16), st.text(st.characters(codec="utf-8"), max_size=20))
def test_a_token_leads_on_from_the_task_it_was_written_for(last, collection):
    token = page_token.write(a_list(collection=collection), last)

    assert page_token.read(a_list(token, collection=collection)) == last


def test_the_first_page_has_no_token():
    assert page_token.read(a_list()) is None


def test_the_size_of_a_page_may_change_from_one_to_the_next():
    token = page_token.write(a_list(page_size=10), LAST)

    assert page_token.read(a_list(token, page_size=20)) == LAST


@pytest.mark.parametrize("changed", FILTERS)
def test_a_token_of_a_list_with_other_filters_is_refused(changed):
    token = page_token.write(a_list(**FILTERS[changed]), LAST)

    with pytest.raises(InvalidRequestError, match="page_token: belongs to a list with other filters"):
        page_token.read(a_list(token))


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_text_that_is_no_token_is_refused(text):
    with pytest.raises(InvalidRequestError, match="page_token"):
        page_token.read(a_list(text))


@given(st.binary(min_size=1, max_size=40).filter(lambda made_up: len(made_up) != 24))
def test_a_token_of_another_length_is_refused(made_up):
    with pytest.raises(InvalidRequestError, match="not a page token"):
        page_token.read(a_list(base64.urlsafe_b64encode(made_up).decode()))
