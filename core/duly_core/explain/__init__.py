"""Reads that explain why a task does not run."""
