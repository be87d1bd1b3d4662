"""Instants that a form of the console sends."""

from datetime import UTC, datetime, timedelta

import pytest

from duly_console.errors import PageError
from duly_console.pages.tasks import instant


def test_a_time_without_an_offset_is_in_utc():
    assert instant("2026-11-22T21:40") == datetime(2026, 11, 22, 21, 40, tzinfo=UTC)


def test_an_offset_in_the_text_holds():
    found = instant("2026-11-22T21:40+05:00")

    assert found.utcoffset() == timedelta(hours=5)
    assert found == datetime(2026, 11, 22, 16, 40, tzinfo=UTC)


def test_text_that_is_no_time_is_a_bad_request():
    with pytest.raises(PageError, match="is not a time"):
        instant("soon")
