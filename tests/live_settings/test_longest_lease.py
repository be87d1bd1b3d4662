"""The longest lease that may be in force, as the Store Consumer knows it."""

from datetime import timedelta

import pytest

from duly_core.live_settings.store import SETTINGS_KNOWN_FOR, ConfigSnapshot
from duly_core.process.clock import nanoseconds
from duly_store_consumer.longest_lease import HEARTBEAT_TIMEOUT, LongestLease

OWN = timedelta(seconds=60)
LONG = timedelta(minutes=10)


class Time:
    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now

    def passes(self, duration):
        self.now += nanoseconds(duration)


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def longest(time):
    return LongestLease(OWN, time)


def found(value=None, former=()):
    settings = {HEARTBEAT_TIMEOUT: value} if value else {}
    return ConfigSnapshot([], settings, [(HEARTBEAT_TIMEOUT, each) for each in former])


def test_without_a_setting_it_is_that_of_the_configuration(longest):
    longest.take(found())

    assert longest.now() == OWN


def test_a_longer_timeout_that_operators_set_counts(longest):
    longest.take(found("10m"))

    assert longest.now() == LONG


def test_a_shorter_one_does_not_because_hscs_may_still_give_their_own(longest):
    longest.take(found("20s"))

    assert longest.now() == OWN


def test_a_timeout_that_was_reset_counts_until_its_last_lease_has_ended(longest, time):
    longest.take(found("10m"))
    longest.take(found())
    assert longest.now() == LONG

    time.passes(LONG + SETTINGS_KNOWN_FOR)

    assert longest.now() == OWN


def test_a_process_that_started_later_learns_of_it_from_the_store(longest):
    longest.take(found("20s", former=["10m", "30s"]))

    assert longest.now() == LONG


def test_a_failover_that_lost_the_setting_does_not_make_it_forget(longest, time):
    longest.take(found("10m"))
    time.passes(LONG)

    longest.take(found())

    assert longest.now() == LONG


def test_a_value_of_another_release_is_passed_over(longest):
    longest.take(found("for ever", former=["never", "2d"]))

    assert longest.now() == OWN
