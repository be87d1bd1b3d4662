"""The statements of watches."""

from duly_core.postgres.statements import load

WATCHES = load("watches/watches.sql")
