"""Events: what happens to tasks, and what tasks wait for."""
