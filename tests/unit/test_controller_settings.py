"""Settings of the Controller that contradict those of the queue are refused."""

import pytest

from duly_controller.__main__ import build
from duly_core.errors import SettingsError


def test_a_visibility_that_leaves_no_time_to_hand_anything_out_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DULY_QUEUE_VISIBILITY", "14s")

    with pytest.raises(
        SettingsError, match=r"queue\.visibility .* controller\.dwell_margin .* to 15s or longer"
    ):
        build([], listen="unix:/nowhere")

    monkeypatch.setenv("DULY_QUEUE_VISIBILITY", "15s")
    assert build([], listen="unix:/nowhere")
