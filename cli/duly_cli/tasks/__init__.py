"""Tasks: scheduled, read, changed, ended."""
