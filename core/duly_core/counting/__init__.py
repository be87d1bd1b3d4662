"""Counts of tasks for people, at a bounded cost."""
