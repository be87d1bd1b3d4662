"""The statements about turns."""

from duly_core.postgres.statements import load

FAIRNESS = load("fairness/fairness.sql")
