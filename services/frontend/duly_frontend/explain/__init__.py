"""Why a task does not run, and what happened to it."""
