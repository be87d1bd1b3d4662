"""Postgres: connections, statements, rights, the schema and its migrations."""
