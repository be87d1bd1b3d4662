"""The statements of time tables."""

from duly_core.postgres.statements import load

TIME_TABLES = load("time_tables/time_tables.sql")
CALENDARS = load("time_tables/calendars.sql")
