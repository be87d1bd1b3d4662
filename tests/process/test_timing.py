"""The timing under which no task runs twice at a time."""

from datetime import timedelta

import pytest

from duly_core.config.timing import PROFILES, RATE_ERROR, Timing
from duly_core.errors import SettingsError

FIELDS = sorted(PROFILES["production"])
BROKEN = {
    "a call longer than the period": (
        {"heartbeat_deadline": "16s"},
        "heartbeat_deadline (16s) must not exceed",
    ),
    "strikes that end too late": ({"heartbeat_period": "16s"}, "three strikes must fire before the deadline"),
    "a deadline before the strikes": ({"process_deadline": "55s"}, "exceeds process_deadline (55s)"),
    "a late scheduler": ({"scheduling_lateness": "2s"}, "scheduling_lateness = 57s"),
    "a deadline after the lease": ({"process_deadline": "57s"}, "heartbeat_timeout - clock_step"),
    "too short a lease": ({"heartbeat_timeout": "58s"}, "raise heartbeat_timeout"),
    "too short a claim": ({"claim_timeout": "58s"}, "raise claim_timeout"),
    "a slow kill": ({"kill_latency": "3s"}, "kill_latency"),
    "a clock that leaps": ({"clock_step": "5s"}, "clock_step"),
}


@pytest.fixture(autouse=True)
def nothing_else_is_said(monkeypatch, tmp_path):
    """No file and no variable of the developer's is read."""
    monkeypatch.chdir(tmp_path)
    for name in ("DULY_CONFIG", "DULY_TIMING_PROFILE", *(f"DULY_TIMING_{field.upper()}" for field in FIELDS)):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("profile", PROFILES)
def test_each_profile_keeps_to_its_own_inequalities(profile):
    timing = Timing.load(profile=profile)

    assert {name: getattr(timing, name) for name in FIELDS} == PROFILES[profile]
    strikes = 3 * timing.heartbeat_period + timing.heartbeat_deadline + timing.scheduling_lateness
    assert strikes <= timing.process_deadline
    for timeout in (timing.heartbeat_timeout, timing.claim_timeout):
        assert (
            timing.process_deadline
            <= (timeout - timing.clock_step) * (1 - 2 * RATE_ERROR) - timing.kill_latency
        )


def test_profiles_say_the_same_things():
    assert PROFILES["embedded"].keys() == PROFILES["production"].keys() == set(FIELDS)
    assert Timing.load().profile == "production"


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_inequality_is_refused_with_the_setting_that_breaks_it(name):
    said, words = BROKEN[name]

    with pytest.raises(SettingsError) as caught:
        Timing.load(**said)

    assert "timing" in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize("field", FIELDS)
def test_no_duration_may_be_nothing(field):
    with pytest.raises(SettingsError, match=f"{field} must be longer than nothing"):
        Timing.load(**{field: "0s"})


def test_one_duration_may_be_said_and_the_profile_fills_in_the_others(monkeypatch):
    monkeypatch.setenv("DULY_TIMING_PROFILE", "embedded")
    monkeypatch.setenv("DULY_TIMING_HEARTBEAT_TIMEOUT", "20s")

    timing = Timing.load()

    assert timing.heartbeat_timeout == timedelta(seconds=20)
    assert timing.claim_timeout == PROFILES["embedded"]["claim_timeout"]


def test_an_unknown_profile_is_refused():
    with pytest.raises(SettingsError, match=r"timing\.profile"):
        Timing.load(profile="staging")


def test_the_longest_safe_deadline_is_taken_and_a_moment_more_is_not():
    timing = Timing.load()
    safe = timing.safe_deadline(timing.heartbeat_timeout)

    Timing.load(process_deadline=safe)
    with pytest.raises(SettingsError):
        Timing.load(process_deadline=safe + timedelta(milliseconds=1))
