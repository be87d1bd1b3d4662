"""Time tables."""
