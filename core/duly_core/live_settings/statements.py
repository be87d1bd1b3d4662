"""The statements of live settings."""

from duly_core.postgres.statements import load

LIVE_SETTINGS = load("live_settings/live_settings.sql")
