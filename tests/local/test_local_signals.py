"""Asking to stop while everything is being started."""

import os
import signal
from contextlib import suppress

import pytest

from duly_local.signals import StoppedWhileStartingError, interruptible


def test_a_signal_ends_what_is_being_started():
    with pytest.raises(StoppedWhileStartingError), interruptible():  # noqa: PT012 (the second must not run)
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("it went on")


def test_a_signal_that_hits_code_which_swallows_exceptions_is_not_forgotten():
    with pytest.raises(StoppedWhileStartingError), interruptible(), suppress(Exception):
        os.kill(os.getpid(), signal.SIGTERM)


def test_afterwards_signals_mean_what_they_meant_before():
    before = signal.getsignal(signal.SIGTERM)

    with interruptible():
        pass

    assert signal.getsignal(signal.SIGTERM) is before
