"""Settings of the Controller that contradict those of the queue are refused."""

from datetime import timedelta

import pytest

from duly_controller.__main__ import build
from duly_controller.settings import DrainSettings
from duly_core.errors import SettingsError


def test_a_visibility_that_leaves_no_time_to_hand_anything_out_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DULY_QUEUE_BACKEND", "sqs")
    monkeypatch.setenv("DULY_QUEUE_VISIBILITY", "14s")

    with pytest.raises(
        SettingsError, match=r"queue\.visibility .* controller\.dwell_margin .* to 15s or longer"
    ):
        build([], listen="unix:/nowhere")

    monkeypatch.setenv("DULY_QUEUE_VISIBILITY", "15s")
    assert build([], listen="unix:/nowhere")


def test_without_a_queue_its_visibility_is_no_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DULY_QUEUE_VISIBILITY", "1s")

    assert build([], listen="unix:/nowhere")


def test_what_else_is_set_for_executors_is_none_of_the_controllers_business(monkeypatch):
    monkeypatch.setenv("DULY_EXECUTOR_PROCESSES", "2")
    monkeypatch.setenv("DULY_EXECUTOR_DRAIN_GRACE", "9s")

    assert DrainSettings.load().drain_grace == timedelta(seconds=9)


def test_the_port_of_a_debugger_is_for_one_executor() -> None:
    arguments = ["examples.hello:app", "--debug-port", "5678"]

    with pytest.raises(SettingsError, match=r"leave executors \(--executors\) at 1"):
        build(arguments, listen="unix:/nowhere", executors=2)
    assert build(arguments, listen="unix:/nowhere", executors=1)
