"""Notifications of problems: whom to tell what, what was told, and how the last deliveries went."""
