"""The store: its schema, its roles, its fences."""
