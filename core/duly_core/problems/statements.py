"""The statements of the incident board."""

from duly_core.postgres.statements import load

PROBLEMS = load("problems/problems.sql")
