"""The statements of notifications."""

from duly_core.postgres.statements import load

NOTIFICATIONS = load("notifications/notifications.sql")
