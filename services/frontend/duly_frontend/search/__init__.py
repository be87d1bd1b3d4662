"""Search: one text, and what it may mean."""
