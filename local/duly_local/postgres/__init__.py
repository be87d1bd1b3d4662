"""The embedded Postgres: its programs, its files, and the process that keeps it running."""
