"""Watches: what happens to tasks and graphs, to callers that may read them."""
