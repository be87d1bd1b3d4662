"""Sessions: tasks that run one at a time, in order."""
