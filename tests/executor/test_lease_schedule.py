"""An Executor follows the shortest recent lease, and a longer one once a whole round of heartbeats was answered."""

from datetime import timedelta

import pytest

from duly_core.config.timing import Timing
from duly_core.errors import SettingsError
from duly_executor.claims.lease_schedule import LeaseSchedule
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import hsc_pb2


@pytest.fixture
def leases():
    return LeaseSchedule(Timing(profile="production"))


def terms(seconds):
    length = to_duration(timedelta(seconds=seconds))
    return hsc_pb2.LeaseTerms(claim_timeout=length, heartbeat_timeout=length)


def test_an_answer_without_terms_has_those_of_the_configuration(leases):
    assert leases.under(hsc_pb2.LeaseTerms()) == leases.now == leases.under(terms(60))


def test_a_shorter_lease_is_followed_at_once(leases):
    assert leases.note(leases.under(terms(15)))

    assert leases.now == leases.under(terms(15))
    assert not leases.note(leases.under(terms(20)))


def test_a_longer_lease_is_followed_after_a_round_of_heartbeats(leases):
    leases.begin_round()
    assert not leases.note(leases.under(terms(600)))
    assert leases.now == leases.under(terms(60))

    leases.end_round()

    assert leases.now == leases.under(terms(600))


def test_the_shortest_answer_of_a_round_counts_while_hscs_disagree(leases):
    leases.begin_round()
    for seconds in (600, 30, 300):
        leases.note(leases.under(terms(seconds)))

    leases.end_round()

    assert leases.now == leases.under(terms(30))


def test_a_round_without_an_answer_changes_nothing(leases):
    leases.note(leases.under(terms(15)))

    leases.begin_round()
    leases.end_round()

    assert leases.now == leases.under(terms(15))


def test_a_claim_under_a_short_lease_that_comes_in_during_a_round_is_not_forgotten(leases):
    leases.begin_round()
    leases.note(leases.under(terms(600)))
    leases.note(leases.under(terms(15)))  # of a claim

    leases.end_round()

    assert leases.now == leases.under(terms(15))


def test_terms_that_are_too_short_change_nothing(leases):
    with pytest.raises(SettingsError, match="too short"):
        leases.under(terms(2))

    assert leases.now == leases.under(terms(60))


def test_many_different_terms_are_told_apart(leases):
    deadlines = {leases.under(terms(seconds)).process_deadline for seconds in range(20, 120)}

    assert len(deadlines) == 100
