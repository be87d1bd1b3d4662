"""Asking to stop while everything is being started."""

import os
import signal
from contextlib import suppress
from io import BytesIO

import pytest

from duly_local.merged_output import MergedOutput
from duly_local.options import StackOptions
from duly_local.signals import StoppedWhileStartingError, interruptible
from duly_local.stack import LocalStack
from duly_local.supervisor import Supervisor


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


async def test_each_request_to_stop_says_what_it_does_to_callbacks_that_run():
    told = BytesIO()
    output = MergedOutput(told)
    stack = LocalStack(StackOptions(apps=("shop:app",), ports="free"), output)
    supervisor = Supervisor([], output)

    for _ in range(2):
        stack._ask_to_stop(supervisor)

    first, second = told.getvalue().decode().splitlines()
    assert "stopping: callbacks have 7s to end. To kill everything at once, ask again" in first
    assert "killing everything; tasks that ran count a crash" in second
    assert supervisor.is_stopping
