"""Turns: tasks of one lambda whose callers gave them fair keys take turns by key, weighted (decision 0093)."""
