"""Watches: what happens to tasks and graphs, as a stream."""
