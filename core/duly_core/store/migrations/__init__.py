"""The schema's history; `duly_core.store.migrate` runs it."""
