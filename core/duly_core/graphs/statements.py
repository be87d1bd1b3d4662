"""The statements of graphs."""

from duly_core.postgres.statements import load

GRAPHS = load("graphs/graphs.sql")
