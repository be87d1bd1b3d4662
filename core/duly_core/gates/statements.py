"""The statements of gates."""

from duly_core.postgres.statements import load

GATES = load("gates/gates.sql")
