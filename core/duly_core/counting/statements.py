"""The statements of counts."""

from duly_core.postgres.statements import load

COUNTING = load("counting/counting.sql")
