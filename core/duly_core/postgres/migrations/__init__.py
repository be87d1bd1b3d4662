"""The schema's history; `duly_core.postgres.migrate` runs it."""
