"""Search: what a text may mean."""
