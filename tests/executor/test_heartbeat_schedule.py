"""What lease terms mean for an Executor: its deadline ends before the lease, whatever operators change meanwhile."""

from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly_core.config.live_sections import LONGEST_LEASE
from duly_core.config.timing import PROFILES, RATE_ERROR, Timing
from duly_core.errors import SettingsError
from duly_core.host.heartbeat_schedule import SHORTEST_CALL, SHORTEST_PERIOD, schedule_under, shortest_lease

PROFILE_NAMES = sorted(PROFILES)


def timing_of(profile: str) -> Timing:
    return Timing(profile=profile)  # type: ignore[arg-type]


def under(timing, lease):
    return schedule_under(timing, lease, lease)


@pytest.mark.parametrize("profile", PROFILE_NAMES)
def test_the_terms_of_its_own_configuration_change_nothing_for_a_host(profile):
    timing = timing_of(profile)

    schedule = schedule_under(timing, timing.claim_timeout, timing.heartbeat_timeout)

    assert schedule.process_deadline == timing.process_deadline
    assert (schedule.period, schedule.call_deadline) == (timing.heartbeat_period, timing.heartbeat_deadline)
    assert schedule.most_strikes == 3


def test_a_longer_lease_lets_a_host_live_longer_and_fail_more_often_at_the_same_period():
    timing = timing_of("production")

    schedule = under(timing, timedelta(minutes=10))

    assert timing.process_deadline + timedelta(minutes=8) < schedule.process_deadline < timedelta(minutes=10)
    assert schedule.period == timing.heartbeat_period
    assert schedule.most_strikes > 30


def test_a_shorter_lease_makes_heartbeats_more_frequent():
    timing = timing_of("production")

    schedule = under(timing, timedelta(seconds=15))

    assert schedule.process_deadline < timedelta(seconds=12)
    assert schedule.period < timedelta(seconds=4)
    assert schedule.most_strikes == 3


@pytest.mark.parametrize("shorter", ["claim_timeout", "heartbeat_timeout"])
def test_the_shorter_of_the_two_timeouts_counts(shorter):
    timing = timing_of("production")
    lease = timedelta(minutes=2)
    terms = {"claim_timeout": timedelta(minutes=5), "heartbeat_timeout": timedelta(minutes=5)}

    assert schedule_under(timing, **terms | {shorter: lease}) == under(timing, lease)


@pytest.mark.parametrize("short", ["claim_timeout", "heartbeat_timeout"])
def test_hosts_refuse_terms_under_which_they_would_have_to_beat_without_pause(short):
    timing = timing_of("production")
    terms = {"claim_timeout": timing.claim_timeout, "heartbeat_timeout": timing.heartbeat_timeout}

    with pytest.raises(SettingsError, match=f"the HSC's {short} is 4s, too short .* timing.{short}"):
        schedule_under(timing, **terms | {short: timedelta(seconds=4)})


@pytest.mark.parametrize("profile", PROFILE_NAMES)
def test_the_shortest_lease_is_taken_and_a_moment_less_is_not(profile):
    timing = timing_of(profile)
    shortest = shortest_lease(timing)

    schedule = under(timing, shortest)

    assert schedule.period >= SHORTEST_PERIOD
    assert schedule.call_deadline >= SHORTEST_CALL
    with pytest.raises(SettingsError):
        under(timing, shortest - timedelta(milliseconds=2))


LEASES = st.timedeltas(min_value=timedelta(seconds=1), max_value=LONGEST_LEASE)


@given(profile=st.sampled_from(PROFILE_NAMES), lease=LEASES)
def test_under_any_terms_the_strikes_come_before_the_deadline_and_the_deadline_before_the_lease(
    profile, lease
):
    timing = timing_of(profile)
    try:
        schedule = under(timing, lease)
    except SettingsError:
        assert lease < shortest_lease(timing)
        return

    assert schedule.process_deadline <= timing.safe_deadline(lease)
    three = 3 * schedule.period + schedule.call_deadline + timing.scheduling_lateness
    assert three <= schedule.process_deadline + timedelta(microseconds=10)
    all_strikes = schedule.most_strikes * schedule.period + schedule.call_deadline
    assert all_strikes + timing.scheduling_lateness <= schedule.process_deadline + timedelta(microseconds=10)


# ---- against a store ------------------------------------------------------------------------------------

CHANGES = st.lists(
    st.tuples(
        st.floats(0, 20),  # seconds until it happens
        st.sampled_from(["beat", "beat whose answer is lost", "setting"]),
        st.floats(8, 600),  # the timeout that is set
        st.booleans(),  # which of two HSCs: one may not know of the setting yet
    ),
    max_size=40,
)


@given(
    profile=st.sampled_from(PROFILE_NAMES),
    steps=CHANGES,
    rate=st.floats(-RATE_ERROR, RATE_ERROR),
    store_rate=st.floats(-RATE_ERROR, RATE_ERROR),
)
def test_no_change_of_the_timeouts_lets_a_lease_end_before_the_deadline_of_its_worker(
    profile, steps, rate, store_rate
):
    """A worker and a row of task_assoc under one token, whose clocks run at different rates; the SQL is `fragment: lease`."""
    timing = timing_of(profile)
    now = 0.0
    known = [60.0, 60.0]  # by HSC

    def of_store(seconds):
        return seconds / (1 + store_rate)

    def of_host(schedule):
        return schedule.process_deadline.total_seconds() / (1 + rate)

    lease_ends, dies = of_store(60), of_host(under(timing, timedelta(seconds=60)))
    for pause, kind, timeout, second in steps:
        now += pause
        if now > dies:
            break
        if kind == "setting":
            known[second] = timeout
            continue
        lease_ends = max(lease_ends, now + of_store(known[second]))
        lease_ends = min(lease_ends, now + of_store(LONGEST_LEASE.total_seconds()))
        if kind == "beat":
            with suppress(SettingsError):
                dies = max(dies, now + of_host(under(timing, timedelta(seconds=known[second]))))

    # the store's clock may step ahead meanwhile
    assert dies + timing.kill_latency.total_seconds() <= lease_ends - of_store(
        timing.clock_step.total_seconds()
    )
