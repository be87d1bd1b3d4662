"""The statements of hosts and services."""

from duly_core.postgres.statements import load

FLEET = load("fleet/fleet.sql")
