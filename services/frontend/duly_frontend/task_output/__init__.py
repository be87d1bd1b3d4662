"""What callbacks and commands print and log, from the workers and to whoever may see payloads."""
