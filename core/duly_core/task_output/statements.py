"""The statements of the output of tasks."""

from duly_core.postgres.statements import load

OUTPUT = load("task_output/output.sql")
