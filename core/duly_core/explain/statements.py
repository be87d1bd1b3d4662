"""The statements of Explain."""

from duly_core.postgres.statements import load

EXPLAIN = load("explain/explain.sql")
