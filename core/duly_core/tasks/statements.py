"""The statements of history and dead letters. Those of the task path are in `duly_core.postgres.statements`."""

from duly_core.postgres.statements import load

HISTORY = load("tasks/history.sql")
