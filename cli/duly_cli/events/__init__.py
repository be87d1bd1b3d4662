"""Events: what happens to tasks."""
