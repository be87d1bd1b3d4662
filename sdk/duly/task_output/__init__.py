"""The output of tasks: what callbacks and commands print and log while they run."""
