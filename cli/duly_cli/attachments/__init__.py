"""Files of tasks."""
