"""The schema's history; `duly_core.postgres.schema.migrate` runs it."""
