"""The statements of resources."""

from duly_core.postgres.statements import load

LIMITS = load("limits/limits.sql")
