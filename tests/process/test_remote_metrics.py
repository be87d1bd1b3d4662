"""Metrics are for this machine unless an operator says otherwise."""

import pytest

from duly_core.errors import SettingsError
from duly_core.process.telemetry import TelemetrySettings, serve_metrics
from duly_local.ports import free_ports


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.1.2.3", "metrics.example.org"])
def test_other_machines_get_no_metrics_unless_told_so(host):
    with pytest.raises(SettingsError, match="allow_remote_metrics"):
        serve_metrics(TelemetrySettings(metrics_listen=f"{host}:9401"))


@pytest.mark.parametrize(
    ("host", "allowed"), [("127.0.0.1", False), ("localhost", False), ("", False), ("0.0.0.0", True)]
)
def test_this_machine_and_those_that_are_allowed_get_them(host, allowed):
    (port,) = free_ports(1)

    serve_metrics(TelemetrySettings(metrics_listen=f"{host}:{port}", allow_remote_metrics=allowed))
